// Blocks of 256 in 8 groups of 32. A group has a scale, and in it four octets of 8 columns with even signs.
// An octet is one grid entry (IQ2_XXS) or two (IQ3_XXS).
//
// For an octet under scale s, entry g and signs, the weighted squared error is
//   sum(w x^2) - 2 s A + s^2 B,  A = sum(w |x| g) and B = sum(w g^2),
// where a column whose sign is not its own counts negative in A. Where the minus signs are odd in number one
// column has to take the wrong sign, and the cheapest one for an entry is that of least w |x| g. A and B know
// no scale: they are computed once for all 256 entries, and the best entry for a scale is the least of
// B - (2/s) A. Over 1/s that is the lower envelope of 256 lines, or the lower right part of the convex hull
// of 256 points (A, B). A first look at a few scales, far apart, tells in which interval the group's scale
// lies; the hull is built for that interval, and the handful of entries on it is all that the choice of the
// group's and the block's scale then has to look at.
#include "quantize/formats/iq_encode.h"

#include <bit>
#include <cmath>
#include <limits>

#include "quantize/formats/fit.h"
#include "tensor/formats/codebooks.h"

namespace fathom {
namespace {

constexpr int kEntries = 256;
constexpr int kGroups = 8;
constexpr int kOctets = 4;   // of a group
constexpr int kLevels = 16;  // of a group's scale
constexpr int kLooks = 5;    // scales of the first look
constexpr int kProbes = 11;  // scales between two or three of those, for which entries are chosen

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
  static constexpr int kParts = 1;            // grid entries of an octet
  static constexpr float kScalePart = 0.25f;  // scale = d * (0.5 + level) * kScalePart
  // Weighted RMS of a group over its scale at the first looks: from little more than one value alone at the
  // highest level, which is 43, to all at it. Normally distributed values are best at about 20.
  static constexpr float kLooks[] = {8.0f, 12.5f, 19.0f, 29.0f, 44.0f};
  static const GridColumns<8>& columns() {
    static const GridColumns<8> grid(kIq2XxsGrid);
    return grid;
  }
};
struct Iq3Xxs {
  static constexpr int kDims = 4;
  static constexpr int kParts = 2;
  static constexpr float kScalePart = 0.5f;
  static constexpr float kLooks[] = {12.0f, 18.0f, 27.0f, 41.0f, 62.0f};
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

// The line of one entry.
struct Line {
  float a;
  float b;
  int entry;
  float score(float slope) const { return b - slope * a; }
};

// The least lines of a set at the slopes of the first look.
void look_for_least(const float* a, const float* b, const float* slopes, Line* found) {
  Lanes best[kLooks];
  Lanes entry[kLooks] = {};
  for (int look = 0; look < kLooks; ++look) best[look] = load_lanes(b) - load_lanes(a) * slopes[look];
  Lanes start{};
  for (int at = kLanes; at < kEntries; at += kLanes) {
    start += static_cast<float>(kLanes);
    const Lanes lane_a = load_lanes(a + at);
    const Lanes lane_b = load_lanes(b + at);
    for (int look = 0; look < kLooks; ++look) {
      const Lanes score = lane_b - lane_a * slopes[look];
      entry[look] = score < best[look] ? start : entry[look];
      best[look] = score < best[look] ? score : best[look];
    }
  }
  for (int look = 0; look < kLooks; ++look) {
    int lane = 0;
    for (int next = 1; next < kLanes; ++next)
      if (best[look][next] < best[look][lane]) lane = next;
    const int least = static_cast<int>(entry[look][lane]) + lane;
    found[look] = {a[least], b[least], least};
  }
}

// The lines of a set that are least for some slope between two, in the order of the slopes: quickhull.
class Envelope {
 public:
  // `known` are the least lines at ascending slopes; the envelope runs from the first to the last of them.
  void build(const float* a, const float* b, const Line* known, int known_count) {
    count_ = 0;
    at_ = 0;
    add(known[0]);
    for (int next = 1; next < known_count; ++next) {
      const Line first = lines_[count_ - 1];
      const Line last = known[next];
      if (!(last.a > first.a)) continue;
      const Chord chord(first, last);
      Line below[kEntries];
      int below_count = 0;
      for (int entry = 0; entry < kEntries; entry += kLanes) {
        const Lanes score = load_lanes(b + entry) - load_lanes(a + entry) * chord.slope;
        const auto is_below = score < chord.score;
        if ((is_below[0] | is_below[1] | is_below[2] | is_below[3]) == 0) continue;
        for (int lane = 0; lane < kLanes; ++lane)
          if (is_below[lane] != 0) below[below_count++] = {a[entry + lane], b[entry + lane], entry + lane};
      }
      add_between(first, last, below, below_count);
      add(last);
    }
  }
  // The least line, for slopes that ascend from call to call.
  const Line& move_to(float slope) {
    while (at_ + 1 < count_ && lines_[at_ + 1].score(slope) < lines_[at_].score(slope)) ++at_;
    return lines_[at_];
  }

 private:
  // The slope at which two lines are equal, and the lower of their scores there: neither is below it.
  struct Chord {
    Chord(const Line& first, const Line& last)
        : slope((last.b - first.b) / (last.a - first.a)),
          score(std::min(first.score(slope), last.score(slope))) {}
    float slope;
    float score;
  };
  void add(const Line& line) { lines_[count_++] = line; }
  // Adds what of `below` is on the envelope between two lines that are. All are below the lines' chord.
  void add_between(const Line& first, const Line& last, const Line* below, int below_count) {
    if (below_count == 0) return;
    const float slope = Chord(first, last).slope;
    Line middle = below[0];
    for (int at = 1; at < below_count; ++at)
      if (below[at].score(slope) < middle.score(slope)) middle = below[at];
    // Equal lines and rounding may leave a middle that is not between.
    if (!(middle.a > first.a) || !(last.a > middle.a)) return;
    Line part[kEntries];
    add_between(first, middle, part, filter(first, middle, below, below_count, part));
    add(middle);
    add_between(middle, last, part, filter(middle, last, below, below_count, part));
  }
  static int filter(const Line& first, const Line& last, const Line* from, int count, Line* to) {
    const Chord chord(first, last);
    int kept = 0;
    for (int at = 0; at < count; ++at)
      if (from[at].score(chord.slope) < chord.score) to[kept++] = from[at];
    return kept;
  }

  int count_;
  int at_;
  Line lines_[kEntries];
};

// One way to encode an octet.
struct Choice {
  float a = 0.0f;
  float b = 0.0f;
  uint8_t entry[2] = {};  // IQ2_XXS uses the first

  bool operator==(const Choice& other) const {
    return entry[0] == other.entry[0] && entry[1] == other.entry[1] && a == other.a;
  }
};

// The ways that are best for some probe.
struct Octet {
  int count = 0;
  Choice choices[kProbes];
  uint8_t at_probe[kProbes];

  void add(int probe, const Choice& choice) {
    if (count == 0 || !(choices[count - 1] == choice)) choices[count++] = choice;
    at_probe[probe] = static_cast<uint8_t>(count - 1);
  }
  const Choice& best(float scale) const {
    int least = 0;
    float least_score = scale * choices[0].b - 2.0f * choices[0].a;
    for (int at = 1; at < count; ++at) {
      const float score = scale * choices[at].b - 2.0f * choices[at].a;
      if (!(score < least_score)) continue;
      least = at;
      least_score = score;
    }
    return choices[least];
  }
};

// Finds the ways to encode an octet. If its signs are odd in number, one of its parts has a wrong one.
template <class Format>
class Chooser {
 public:
  void look(const float* magnitudes, const float* weights, bool odd, const float* slopes) {
    odd_ = odd;
    for (int at = 0; at < Format::kParts; ++at) {
      Part& part = parts_[at];
      const int first = at * Format::kDims;
      fill_lines(Format::columns(), magnitudes + first, weights + first, part.lines);
      if (uses_plain()) look_for_least(part.lines.a, part.lines.b, slopes, part.plain_looks);
      if (odd) look_for_least(part.lines.flipped_a, part.lines.b, slopes, part.flipped_looks);
    }
  }
  Choice at_look(int look, float slope) const {
    const Line* plain[2] = {};
    const Line* flipped[2] = {};
    for (int at = 0; at < Format::kParts; ++at) {
      plain[at] = &parts_[at].plain_looks[look];
      flipped[at] = &parts_[at].flipped_looks[look];
    }
    return combine(plain, flipped, slope);
  }
  // Fills the octet for probes between two looks.
  void probe(int first_look, int last_look, const float* slopes, Octet& octet) const {
    const int looks = last_look - first_look + 1;
    Envelope plain_envelopes[Format::kParts];
    Envelope flipped_envelopes[Format::kParts];
    for (int at = 0; at < Format::kParts; ++at) {
      const Part& part = parts_[at];
      const Lines& lines = part.lines;
      if (uses_plain()) plain_envelopes[at].build(lines.a, lines.b, part.plain_looks + first_look, looks);
      if (odd_)
        flipped_envelopes[at].build(lines.flipped_a, lines.b, part.flipped_looks + first_look, looks);
    }
    for (int probe = 0; probe < kProbes; ++probe) {
      const Line* plain[2] = {};
      const Line* flipped[2] = {};
      for (int at = 0; at < Format::kParts; ++at) {
        if (uses_plain()) plain[at] = &plain_envelopes[at].move_to(slopes[probe]);
        if (odd_) flipped[at] = &flipped_envelopes[at].move_to(slopes[probe]);
      }
      octet.add(probe, combine(plain, flipped, slopes[probe]));
    }
  }

 private:
  struct Part {
    Lines lines;
    Line plain_looks[kLooks];
    Line flipped_looks[kLooks];
  };
  // With one part alone an odd octet has no use for the right signs.
  bool uses_plain() const { return !odd_ || Format::kParts > 1; }

  Choice combine(const Line* const* plain, const Line* const* flipped, float slope) const {
    int wrong = -1;
    if (odd_) {
      wrong = 0;
      if constexpr (Format::kParts == 2) {
        const float first_cost = flipped[0]->score(slope) - plain[0]->score(slope);
        const float second_cost = flipped[1]->score(slope) - plain[1]->score(slope);
        if (second_cost < first_cost) wrong = 1;
      }
    }
    Choice choice;
    for (int at = 0; at < Format::kParts; ++at) {
      const Line& line = at == wrong ? *flipped[at] : *plain[at];
      choice.a += line.a;
      choice.b += line.b;
      choice.entry[at] = static_cast<uint8_t>(line.entry);
    }
    return choice;
  }

  bool odd_ = false;
  Part parts_[Format::kParts];
};

struct Group {
  float magnitudes[32];
  uint8_t signs[kOctets];  // bit set: the column is negative; not yet even
  bool odd[kOctets];
  Octet octets[kOctets];
  float best_scale = 0.0f;  // if the scale were free
};

// Fills magnitudes and signs; returns the weighted RMS.
float measure_group(const float* values, const float* weights, Group& group) {
  float squares = 0.0f;
  float weight = 0.0f;
  for (int column = 0; column < 32; ++column) {
    group.magnitudes[column] = std::fabs(values[column]);
    squares += weights[column] * (values[column] * values[column]);
    weight += weights[column];
  }
  for (int octet = 0; octet < kOctets; ++octet) {
    int signs = 0;
    for (int column = 0; column < 8; ++column) signs |= (values[8 * octet + column] < 0.0f ? 1 : 0) << column;
    group.signs[octet] = static_cast<uint8_t>(signs);
    group.odd[octet] = std::popcount(static_cast<unsigned>(signs)) % 2 != 0;
  }
  return std::sqrt(squares / weight);
}

template <class Format>
void prepare_group(const float* values, const float* weights, Group& group) {
  // A group of zeros takes any scale.
  const float rms = std::max(measure_group(values, weights, group), 1e-30f);
  float slopes[kLooks];
  for (int look = 0; look < kLooks; ++look) slopes[look] = 2.0f * Format::kLooks[look] / rms;
  Chooser<Format> choosers[kOctets];
  float look_a[kLooks] = {};
  float look_b[kLooks] = {};
  for (int octet = 0; octet < kOctets; ++octet) {
    choosers[octet].look(group.magnitudes + 8 * octet, weights + 8 * octet, group.odd[octet], slopes);
    for (int look = 0; look < kLooks; ++look) {
      const Choice choice = choosers[octet].at_look(look, slopes[look]);
      look_a[look] += choice.a;
      look_b[look] += choice.b;
    }
  }
  // With the scale fitted, a / b, a group's error is less by a^2 / b.
  const auto gain = [](float a, float b) { return a > 0.0f ? a / b * a : 0.0f; };
  int best_look = 0;
  for (int look = 1; look < kLooks; ++look)
    if (gain(look_a[look], look_b[look]) > gain(look_a[best_look], look_b[best_look])) best_look = look;

  const int first = std::max(best_look - 1, 0);
  const int last = std::min(best_look + 1, kLooks - 1);
  float probes[kProbes];
  const float between = (slopes[last] - slopes[first]) / (kProbes - 1);
  for (int probe = 0; probe < kProbes; ++probe)
    probes[probe] = slopes[first] + between * static_cast<float>(probe);
  for (int octet = 0; octet < kOctets; ++octet)
    choosers[octet].probe(first, last, probes, group.octets[octet]);
  float best_gain = 0.0f;
  for (int probe = 0; probe < kProbes; ++probe) {
    float a = 0.0f;
    float b = 0.0f;
    for (const Octet& octet : group.octets) {
      a += octet.choices[octet.at_probe[probe]].a;
      b += octet.choices[octet.at_probe[probe]].b;
    }
    if (!(gain(a, b) > best_gain)) continue;
    best_gain = gain(a, b);
    group.best_scale = a / b;
  }
}

// Error of a group under a scale, less sum(w x^2).
float group_error(const Group& group, float scale) {
  float error = 0.0f;
  for (const Octet& octet : group.octets) {
    const Choice& choice = octet.best(scale);
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
      const Choice& choice = octet.best(scales.d * part);
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
    prepare_group<Iq2Xxs>(values + 32 * at, weights + 32 * at, groups[at]);
  const Scales scales = search_scales<Iq2Xxs>(groups);
  store_half(scales.d, block);
  for (int at = 0; at < kGroups; ++at) {
    const float scale = scales.d * Iq2Xxs::kScalePart * unit(scales.level[at]);
    uint32_t tail = static_cast<uint32_t>(scales.level[at]) << 28;
    for (int part = 0; part < kOctets; ++part) {
      const Choice& choice = groups[at].octets[part].best(scale);
      block[2 + 8 * at + part] = choice.entry[0];
      tail |= seven_signs<Iq2Xxs>(groups[at], part, choice, weights + 32 * at) << (7 * part);
    }
    store_u32(tail, block + 6 + 8 * at);
  }
}

void encode_iq3_xxs(const float* values, const float* weights, uint8_t* block) {
  Group groups[kGroups];
  for (int at = 0; at < kGroups; ++at)
    prepare_group<Iq3Xxs>(values + 32 * at, weights + 32 * at, groups[at]);
  const Scales scales = search_scales<Iq3Xxs>(groups);
  store_half(scales.d, block);
  for (int at = 0; at < kGroups; ++at) {
    const float scale = scales.d * Iq3Xxs::kScalePart * unit(scales.level[at]);
    uint32_t tail = static_cast<uint32_t>(scales.level[at]) << 28;
    for (int part = 0; part < kOctets; ++part) {
      const Choice& choice = groups[at].octets[part].best(scale);
      block[2 + 8 * at + 2 * part] = choice.entry[0];
      block[3 + 8 * at + 2 * part] = choice.entry[1];
      tail |= seven_signs<Iq3Xxs>(groups[at], part, choice, weights + 32 * at) << (7 * part);
    }
    store_u32(tail, block + 66 + 4 * at);
  }
}

}  // namespace fathom
