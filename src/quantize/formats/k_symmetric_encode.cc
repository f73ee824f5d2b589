// Q3_K, Q6_K and IQ4_XS: w = (d * scale) * level, scale being a small signed integer of a sub-block.
#include "quantize/formats/k_encode.h"
#include "quantize/formats/symmetric_fit.h"

namespace fathom {
namespace {

constexpr int kBlock = 256;

// Where a sub-block's peak may be put. Levels that reach further on one side let either sign of the scale be
// the better one; for the fine types only the rounding of the outer value is left to choose.
constexpr float kTargets3Bit[] = {-5.2f, -4.8f, -4.45f, -4.15f, -3.9f, -3.6f, -3.3f, -3.0f, -2.7f,
                                  2.5f,  2.8f,  3.1f,   3.4f,   3.7f,  4.0f};
constexpr float kTargets6Bit[] = {-32.4f, -31.8f, -31.0f, -30.2f, -29.4f, 29.4f, 30.2f, 30.9f, 31.4f};
constexpr float kTargetsIq4[] = {-141.0f, -133.0f, -127.0f, -120.0f, -113.0f, -105.0f,
                                 98.0f,   105.0f,  113.0f,  120.0f,  128.0f};

struct Q3K {
  static constexpr int kRun = 16;
  static constexpr float kLowestScale = -32.0f;
  static constexpr float kHighestScale = 31.0f;
  using Levels = IntegerLevels<-4, 3>;
  static constexpr const auto& kTargets = kTargets3Bit;
};
struct Q6K {
  static constexpr int kRun = 16;
  static constexpr float kLowestScale = -128.0f;
  static constexpr float kHighestScale = 127.0f;
  using Levels = IntegerLevels<-32, 31>;
  static constexpr const auto& kTargets = kTargets6Bit;
};
struct Iq4Xs {
  static constexpr int kRun = 32;
  static constexpr float kLowestScale = -32.0f;
  static constexpr float kHighestScale = 31.0f;
  using Levels = Iq4Levels;
  static constexpr const auto& kTargets = kTargetsIq4;
};

template <class Format>
struct Block {
  static constexpr int kRuns = kBlock / Format::kRun;
  float d = 0.0f;  // as the half will be read
  float scale[kRuns] = {};
  float error[kRuns] = {};

  float total_error() const {
    float sum = 0.0f;
    for (const float run_error : error) sum += run_error;
    return sum;
  }
};

template <class Format>
struct Source {
  const float* values;
  const float* weights;
  float fits[kBlock / Format::kRun];  // the sub-blocks' own scales

  Run run(int index) const { return {values + index * Format::kRun, weights + index * Format::kRun}; }
};

template <class Format>
float run_error(Run run, float scale) {
  return level_error<typename Format::Levels, Format::kRun>(run, scale);
}

template <class Format>
Block<Format> round_fits(const Source<Format>& source, float d) {
  Block<Format> block{.d = as_half(d)};
  const float inverse = inverse_or_zero(block.d);
  for (int run = 0; run < Block<Format>::kRuns; ++run) {
    block.scale[run] = nearest_code(source.fits[run] * inverse, Format::kLowestScale, Format::kHighestScale);
    block.error[run] = run_error<Format>(source.run(run), block.d * block.scale[run]);
  }
  return block;
}

template <class Format>
void improve_integers(const Source<Format>& source, Block<Format>& block) {
  for (int run = 0; run < Block<Format>::kRuns; ++run) {
    const float scale = block.scale[run];
    for (const float near : {scale - 1.0f, scale + 1.0f}) {
      if (near < Format::kLowestScale || near > Format::kHighestScale) continue;
      const float error = run_error<Format>(source.run(run), block.d * near);
      if (!(error < block.error[run])) continue;
      block.error[run] = error;
      block.scale[run] = near;
    }
  }
}

// d of least squares for the levels that the block now has; kept if the rounded result is better.
template <class Format>
bool refit(const Source<Format>& source, Block<Format>& block) {
  double qq = 0.0;
  double xq = 0.0;
  for (int run = 0; run < Block<Format>::kRuns; ++run) {
    const double scale = static_cast<double>(block.scale[run]);
    const LevelSums sums = level_sums<typename Format::Levels, Format::kRun>(
        source.run(run), inverse_or_zero(block.d * block.scale[run]));
    qq += scale * scale * sums.qq;
    xq += scale * sums.xq;
  }
  if (!(qq > 0.0)) return false;
  Block<Format> next = block;
  next.d = as_half(static_cast<float>(xq / qq));
  for (int run = 0; run < Block<Format>::kRuns; ++run)
    next.error[run] = run_error<Format>(source.run(run), next.d * next.scale[run]);
  if (!(next.total_error() < block.total_error())) return false;
  block = next;
  return true;
}

template <class Format>
Block<Format> fit_block(const float* values, const float* weights) {
  Source<Format> source{.values = values, .weights = weights, .fits = {}};
  for (int run = 0; run < Block<Format>::kRuns; ++run)
    source.fits[run] =
        search_scale<typename Format::Levels, Format::kRun>(source.run(run), Format::kTargets);
  // The largest scale gets the end of the integers' longer side, or a little less than it, or is clipped.
  const float largest = peak<Block<Format>::kRuns>(source.fits);
  Block<Format> best = round_fits(source, largest / Format::kLowestScale);
  for (const float part : {0.9f, 0.95f, 1.05f}) {
    const Block<Format> next = round_fits(source, largest / (part * Format::kLowestScale));
    if (next.total_error() < best.total_error()) best = next;
  }
  improve_integers(source, best);
  if (refit(source, best)) {
    improve_integers(source, best);
    refit(source, best);
  }
  return best;
}

// Levels of the whole block.
template <class Format>
void write_block_levels(const Block<Format>& block, const float* values, int* levels) {
  for (int run = 0; run < Block<Format>::kRuns; ++run)
    write_levels<typename Format::Levels>(values + run * Format::kRun, Format::kRun,
                                          inverse_or_zero(block.d * block.scale[run]),
                                          levels + run * Format::kRun);
}

}  // namespace

void encode_q3_k(const float* values, const float* weights, uint8_t* block) {
  const Block<Q3K> fit = fit_block<Q3K>(values, weights);
  int levels[kBlock];
  write_block_levels(fit, values, levels);
  std::fill_n(block, 108, uint8_t{0});
  for (int column = 0; column < kBlock; ++column) {
    const int half = column / 128;
    const int code = levels[column] + 4;
    block[column % 32] |= static_cast<uint8_t>((code >> 2) << (column / 32));
    block[32 + 32 * half + column % 32] |= static_cast<uint8_t>((code & 3) << (2 * (column / 32 % 4)));
  }
  for (int run = 0; run < 16; ++run) {
    const int scale = static_cast<int>(fit.scale[run]) + 32;
    block[96 + run % 8] |= static_cast<uint8_t>((scale & 15) << (4 * (run / 8)));
    block[104 + run % 4] |= static_cast<uint8_t>((scale >> 4) << (2 * (run / 4)));
  }
  store_half(fit.d, block + 108);
}

void encode_q6_k(const float* values, const float* weights, uint8_t* block) {
  const Block<Q6K> fit = fit_block<Q6K>(values, weights);
  int levels[kBlock];
  write_block_levels(fit, values, levels);
  std::fill_n(block, 192, uint8_t{0});
  for (int column = 0; column < kBlock; ++column) {
    const int half = column / 128;
    const int quarter = column / 32 % 4;
    const int code = levels[column] + 32;
    block[64 * half + 32 * (quarter % 2) + column % 32] |=
        static_cast<uint8_t>((code & 15) << (4 * (quarter / 2)));
    block[128 + 32 * half + column % 32] |= static_cast<uint8_t>((code >> 4) << (2 * quarter));
  }
  for (int run = 0; run < 16; ++run)
    block[192 + run] = static_cast<uint8_t>(static_cast<int8_t>(fit.scale[run]));
  store_half(fit.d, block + 208);
}

void encode_iq4_xs(const float* values, const float* weights, uint8_t* block) {
  const Block<Iq4Xs> fit = fit_block<Iq4Xs>(values, weights);
  int levels[kBlock];
  write_block_levels(fit, values, levels);
  std::fill_n(block, 136, uint8_t{0});
  store_half(fit.d, block);
  for (int run = 0; run < 8; ++run) {
    const int scale = static_cast<int>(fit.scale[run]) + 32;
    block[2 + run / 4] |= static_cast<uint8_t>((scale >> 4) << (2 * (run % 4)));
    block[4 + run / 2] |= static_cast<uint8_t>((scale & 15) << (4 * (run % 2)));
    pack_iq4_levels(levels + 32 * run, block + 8 + 16 * run);
  }
}

}  // namespace fathom
