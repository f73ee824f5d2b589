// Blocks of 256 in 8 groups of 32. A group has a scale, and in it four octets of 8 columns with even signs.
// An octet is one grid entry (IQ2_XXS) or two (IQ3_XXS).
//
// For an octet under scale s, entry g and signs, the weighted squared error is
//   sum(w x^2) - 2 s A + s^2 B,  A = sum(w |x| g) and B = sum(w g^2),
// where a column whose sign is not its own counts negative in A. Where the minus signs are odd in number one
// column has to take the wrong sign, and the cheapest one for an entry is that of least w |x| g. A and B know
// no scale: they are computed once for all 256 entries, and the best entry for a scale is the least of
// B - (2/s) A. Over 1/s that is the lower envelope of 256 lines; an entry that is best at both ends of an
// interval is best throughout, and so the envelope is found by bisection. The entries on it are all that the
// choice of the group's and the block's scale has to look at.
#include "quantize/formats/iq_encode.h"

#include <limits>

#include "quantize/formats/fit.h"
#include "tensor/formats/codebooks.h"

namespace fathom {
namespace {

constexpr int kEntries = 256;
constexpr int kGroups = 8;
constexpr int kOctets = 4;   // of a group
constexpr int kLevels = 16;  // of a group's scale
constexpr int kProbes = 17;  // scales at which an octet's entries are chosen, 2^n + 1

// A grid with its columns apart, for loops over the entries.
template <int kDims>
struct GridColumns {
  float value[kDims][kEntries];
  float square[kDims][kEntries];

  explicit GridColumns(const IqGrid<kEntries, kDims>& grid) {
    for (int dim = 0; dim < kDims; ++dim) {
      for (int entry = 0; entry < kEntries; ++entry) {
        value[dim][entry] = grid.value[entry][dim];
        square[dim][entry] = value[dim][entry] * value[dim][entry];
      }
    }
  }
};

struct Iq2Xxs {
  static constexpr int kDims = 8;
  static constexpr float kScalePart = 0.25f;  // scale = d * (0.5 + level) * kScalePart
  // Weighted RMS over scale, between which entries are chosen: from one value alone at the level 43 to all
  // at it. Probes grow by a ratio.
  static constexpr float kLeastRms = 6.5f;
  static constexpr float kRatio = 1.13f;
  static const GridColumns<8>& columns() {
    static const GridColumns<8> grid(kIq2XxsGrid);
    return grid;
  }
};
struct Iq3Xxs {
  static constexpr int kDims = 4;
  static constexpr float kScalePart = 0.5f;
  static constexpr float kLeastRms = 10.0f;
  static constexpr float kRatio = 1.125f;
  static const GridColumns<4>& columns() {
    static const GridColumns<4> grid(kIq3XxsGrid);
    return grid;
  }
};

// A and B of all entries, for as many columns as the grid has.
struct Lines {
  float a[kEntries];
  float flipped_a[kEntries];  // with the cheapest column negated
  float b[kEntries];
};

template <int kDims>
void fill_lines(const GridColumns<kDims>& grid, const float* magnitudes, const float* weights, Lines& lines) {
  float weighted[kDims];
  for (int dim = 0; dim < kDims; ++dim) weighted[dim] = weights[dim] * magnitudes[dim];
  for (int entry = 0; entry < kEntries; entry += kLanes) {
    Lanes a = load_lanes(grid.value[0] + entry) * weighted[0];
    Lanes b = load_lanes(grid.square[0] + entry) * weights[0];
    Lanes least = a;
    for (int dim = 1; dim < kDims; ++dim) {
      const Lanes part = load_lanes(grid.value[dim] + entry) * weighted[dim];
      a += part;
      least = part < least ? part : least;
      b += load_lanes(grid.square[dim] + entry) * weights[dim];
    }
    const Lanes flipped = a - least * 2.0f;
    std::memcpy(lines.a + entry, &a, sizeof a);
    std::memcpy(lines.flipped_a + entry, &flipped, sizeof flipped);
    std::memcpy(lines.b + entry, &b, sizeof b);
  }
}

struct Best {
  float score;
  int entry;
};
// Least b - slope * a; the first of equals.
Best least_line(const float* a, const float* b, float slope) {
  Lanes best = load_lanes(b) - load_lanes(a) * slope;
  Lanes entry{};
  Lanes start{};
  for (int at = kLanes; at < kEntries; at += kLanes) {
    start += static_cast<float>(kLanes);
    const Lanes score = load_lanes(b + at) - load_lanes(a + at) * slope;
    entry = score < best ? start : entry;
    best = score < best ? score : best;
  }
  Best least{best[0], static_cast<int>(entry[0])};
  for (int lane = 1; lane < kLanes; ++lane) {
    const int lane_entry = static_cast<int>(entry[lane]) + lane;
    if (best[lane] < least.score || (best[lane] == least.score && lane_entry < least.entry))
      least = {best[lane], lane_entry};
  }
  return least;
}

// The best way to encode an octet for one scale.
struct Choice {
  float a = 0.0f;
  float b = 0.0f;
  uint8_t entry[2] = {};  // IQ2_XXS uses the first

  bool operator==(const Choice& other) const {
    return entry[0] == other.entry[0] && entry[1] == other.entry[1] && a == other.a;
  }
};

struct Octet {
  Choice choices[kProbes];
};

// Chooses for one octet of IQ2_XXS.
class WholeChooser {
 public:
  WholeChooser(const float* magnitudes, const float* weights, bool odd) : odd_(odd) {
    fill_lines(Iq2Xxs::columns(), magnitudes, weights, lines_);
  }
  Choice choose(float slope) const {
    const float* a = odd_ ? lines_.flipped_a : lines_.a;
    const int entry = least_line(a, lines_.b, slope).entry;
    return {a[entry], lines_.b[entry], {static_cast<uint8_t>(entry), 0}};
  }

 private:
  Lines lines_;
  bool odd_;
};

// Chooses for one octet of IQ3_XXS. If the signs are odd, one of the halves has the wrong one.
class HalvesChooser {
 public:
  HalvesChooser(const float* magnitudes, const float* weights, bool odd) : odd_(odd) {
    for (int half = 0; half < 2; ++half)
      fill_lines(Iq3Xxs::columns(), magnitudes + 4 * half, weights + 4 * half, halves_[half]);
  }
  Choice choose(float slope) const {
    Best plain[2];
    for (int half = 0; half < 2; ++half) plain[half] = least_line(halves_[half].a, halves_[half].b, slope);
    int flipped = -1;
    if (odd_) {
      Best with_flip[2];
      for (int half = 0; half < 2; ++half)
        with_flip[half] = least_line(halves_[half].flipped_a, halves_[half].b, slope);
      flipped = with_flip[0].score + plain[1].score <= plain[0].score + with_flip[1].score ? 0 : 1;
      plain[flipped] = with_flip[flipped];
    }
    Choice choice;
    for (int half = 0; half < 2; ++half) {
      const int entry = plain[half].entry;
      choice.entry[half] = static_cast<uint8_t>(entry);
      choice.a += half == flipped ? halves_[half].flipped_a[entry] : halves_[half].a[entry];
      choice.b += halves_[half].b[entry];
    }
    return choice;
  }

 private:
  Lines halves_[2];
  bool odd_;
};

template <class Chooser>
void bisect(const Chooser& chooser, const float* slopes, int first, int last, Octet& octet) {
  if (last - first < 2) return;
  const int middle = (first + last) / 2;
  const bool same = octet.choices[first] == octet.choices[last];
  octet.choices[middle] = same ? octet.choices[first] : chooser.choose(slopes[middle]);
  bisect(chooser, slopes, first, middle, octet);
  bisect(chooser, slopes, middle, last, octet);
}

struct Group {
  float magnitudes[32];
  uint8_t signs[kOctets];  // bit set: the column is negative; not yet even
  bool odd[kOctets];
  Octet octets[kOctets];
  float best_scale = 0.0f;  // if the scale were free
};

template <class Format, class Chooser>
void prepare_group(const float* values, const float* weights, Group& group) {
  float squares = 0.0f;
  float weight = 0.0f;
  for (int column = 0; column < 32; ++column) {
    group.magnitudes[column] = std::fabs(values[column]);
    squares += weights[column] * (values[column] * values[column]);
    weight += weights[column];
  }
  // A group of zeros takes any scale.
  const float rms = std::max(std::sqrt(squares / weight), 1e-30f);
  float slopes[kProbes];
  float probe_rms = Format::kLeastRms;
  for (int probe = 0; probe < kProbes; ++probe, probe_rms *= Format::kRatio)
    slopes[probe] = 2.0f * probe_rms / rms;

  for (int part = 0; part < kOctets; ++part) {
    int signs = 0;
    int count = 0;
    for (int column = 0; column < 8; ++column) {
      if (!(values[8 * part + column] < 0.0f)) continue;
      signs |= 1 << column;
      ++count;
    }
    group.signs[part] = static_cast<uint8_t>(signs);
    group.odd[part] = count % 2 != 0;
    const Chooser chooser(group.magnitudes + 8 * part, weights + 8 * part, group.odd[part]);
    Octet& octet = group.octets[part];
    octet.choices[0] = chooser.choose(slopes[0]);
    octet.choices[kProbes - 1] = chooser.choose(slopes[kProbes - 1]);
    bisect(chooser, slopes, 0, kProbes - 1, octet);
  }
  float best_gain = 0.0f;
  for (int probe = 0; probe < kProbes; ++probe) {
    float a = 0.0f;
    float b = 0.0f;
    for (const Octet& octet : group.octets) {
      a += octet.choices[probe].a;
      b += octet.choices[probe].b;
    }
    if (!(a > 0.0f) || !(a / b * a > best_gain)) continue;
    best_gain = a / b * a;
    group.best_scale = a / b;
  }
}

const Choice& best_choice(const Octet& octet, float scale) {
  int best = 0;
  float best_score = std::numeric_limits<float>::max();
  for (int probe = 0; probe < kProbes; ++probe) {
    const float score = scale * octet.choices[probe].b - 2.0f * octet.choices[probe].a;
    if (!(score < best_score)) continue;
    best = probe;
    best_score = score;
  }
  return octet.choices[best];
}

// Error of a group under a scale, less sum(w x^2).
float group_error(const Group& group, float scale) {
  float error = 0.0f;
  for (const Octet& octet : group.octets) {
    const Choice& choice = best_choice(octet, scale);
    error += scale * (scale * choice.b - 2.0f * choice.a);
  }
  return error;
}

struct Scales {
  float d = 0.0f;
  int level[kGroups] = {};
  float error = 0.0f;
};

float unit(int level) { return 0.5f + static_cast<float>(level); }

template <class Format>
Scales round_scales(const Group* groups, float d) {
  Scales scales{.d = as_half(d)};
  const float step = scales.d * Format::kScalePart;
  const float inverse = inverse_or_zero(step);
  for (int at = 0; at < kGroups; ++at) {
    const float below = groups[at].best_scale * inverse - 0.5f;
    const int lower = std::clamp(static_cast<int>(std::min(below, 15.0f)), 0, kLevels - 2);
    const float lower_error = group_error(groups[at], step * unit(lower));
    const float upper_error = group_error(groups[at], step * unit(lower + 1));
    scales.level[at] = upper_error < lower_error ? lower + 1 : lower;
    scales.error += std::min(lower_error, upper_error);
  }
  return scales;
}

// d of least squares for the entries and levels chosen.
template <class Format>
float fitted_d(const Group* groups, const Scales& scales) {
  float a = 0.0f;
  float b = 0.0f;
  for (int at = 0; at < kGroups; ++at) {
    const float part = Format::kScalePart * unit(scales.level[at]);
    for (const Octet& octet : groups[at].octets) {
      const Choice& choice = best_choice(octet, scales.d * part);
      a += part * choice.a;
      b += part * part * choice.b;
    }
  }
  return a > 0.0f ? a / b : scales.d;
}

template <class Format>
Scales search_scales(const Group* groups) {
  float largest = 0.0f;
  for (int at = 0; at < kGroups; ++at) largest = std::max(largest, groups[at].best_scale);
  Scales best = round_scales<Format>(groups, largest / (15.5f * Format::kScalePart));
  // The level of the largest scale: a finer d clips it, a coarser one may suit the others better.
  for (const float top : {16.5f, 16.0f, 15.0f, 14.5f, 14.0f, 13.5f, 13.0f, 12.5f, 12.0f, 11.5f, 11.0f}) {
    const Scales next = round_scales<Format>(groups, largest / (top * Format::kScalePart));
    if (next.error < best.error) best = next;
  }
  for (int round = 0; round < 2; ++round) {
    const Scales next = round_scales<Format>(groups, fitted_d<Format>(groups, best));
    if (!(next.error < best.error)) break;
    best = next;
  }
  return best;
}

// The stored seven signs: those of the values, and one turned where they are odd, as the choice assumed.
template <class Format>
uint32_t seven_signs(const Group& group, int part, const Choice& choice, const float* weights) {
  int signs = group.signs[part];
  if (group.odd[part]) {
    int cheapest = 0;
    float least = std::numeric_limits<float>::max();
    for (int column = 0; column < 8; ++column) {
      const int entry = choice.entry[column / Format::kDims];
      const float level = Format::columns().value[column % Format::kDims][entry];
      const float cost = (weights[8 * part + column] * group.magnitudes[8 * part + column]) * level;
      if (!(cost < least)) continue;
      cheapest = column;
      least = cost;
    }
    signs ^= 1 << cheapest;
  }
  return static_cast<uint32_t>(signs & 127);
}

void store_u32(uint32_t word, uint8_t* out) {
  for (int byte = 0; byte < 4; ++byte) out[byte] = static_cast<uint8_t>(word >> (8 * byte));
}

}  // namespace

void encode_iq2_xxs(const float* values, const float* weights, uint8_t* block) {
  Group groups[kGroups];
  for (int at = 0; at < kGroups; ++at)
    prepare_group<Iq2Xxs, WholeChooser>(values + 32 * at, weights + 32 * at, groups[at]);
  const Scales scales = search_scales<Iq2Xxs>(groups);
  store_half(scales.d, block);
  for (int at = 0; at < kGroups; ++at) {
    const float scale = scales.d * Iq2Xxs::kScalePart * unit(scales.level[at]);
    uint32_t tail = static_cast<uint32_t>(scales.level[at]) << 28;
    for (int part = 0; part < kOctets; ++part) {
      const Choice& choice = best_choice(groups[at].octets[part], scale);
      block[2 + 8 * at + part] = choice.entry[0];
      tail |= seven_signs<Iq2Xxs>(groups[at], part, choice, weights + 32 * at) << (7 * part);
    }
    store_u32(tail, block + 6 + 8 * at);
  }
}

void encode_iq3_xxs(const float* values, const float* weights, uint8_t* block) {
  Group groups[kGroups];
  for (int at = 0; at < kGroups; ++at)
    prepare_group<Iq3Xxs, HalvesChooser>(values + 32 * at, weights + 32 * at, groups[at]);
  const Scales scales = search_scales<Iq3Xxs>(groups);
  store_half(scales.d, block);
  for (int at = 0; at < kGroups; ++at) {
    const float scale = scales.d * Iq3Xxs::kScalePart * unit(scales.level[at]);
    uint32_t tail = static_cast<uint32_t>(scales.level[at]) << 28;
    for (int part = 0; part < kOctets; ++part) {
      const Choice& choice = best_choice(groups[at].octets[part], scale);
      block[2 + 8 * at + 2 * part] = choice.entry[0];
      block[3 + 8 * at + 2 * part] = choice.entry[1];
      tail |= seven_signs<Iq3Xxs>(groups[at], part, choice, weights + 32 * at) << (7 * part);
    }
    store_u32(tail, block + 66 + 4 * at);
  }
}

}  // namespace fathom
