// Q2_K, Q4_K and Q5_K: w = (d * scale) * q - dmin * min, scale and min being small integers of a sub-block.
#include "quantize/formats/fit.h"
#include "quantize/formats/k_encode.h"

namespace fathom {
namespace {

constexpr int kBlock = 256;

// Insets tried for a sub-block. With four codes the ends matter most: the outer values are better clipped.
constexpr Inset kInsets2Bit[] = {{0.0f, 0.0f},   {0.06f, 0.06f}, {0.12f, 0.12f}, {0.18f, 0.18f},
                                 {0.0f, 0.12f},  {0.12f, 0.0f},  {0.06f, 0.18f}, {0.18f, 0.06f},
                                 {0.0f, 0.22f},  {0.22f, 0.0f},  {-0.1f, 0.05f}, {0.05f, -0.1f}};
constexpr Inset kInsets4Bit[] = {{0.0f, 0.0f},    {0.02f, 0.02f},   {0.045f, 0.045f}, {0.0f, 0.04f},
                                 {0.04f, 0.0f},   {-0.02f, 0.02f},  {0.02f, -0.02f},  {-0.015f, -0.015f}};
constexpr Inset kInsets5Bit[] = {{0.0f, 0.0f},    {0.012f, 0.012f}, {0.0f, 0.02f},
                                 {0.02f, 0.0f},   {-0.01f, 0.01f},  {0.01f, -0.01f}};

struct Q2K {
  static constexpr int kRun = 16;
  static constexpr int kTop = 3;
  static constexpr int kTopScale = 15;
  static constexpr const auto& kInsets = kInsets2Bit;
};
struct Q4K {
  static constexpr int kRun = 32;
  static constexpr int kTop = 15;
  static constexpr int kTopScale = 63;
  static constexpr const auto& kInsets = kInsets4Bit;
};
struct Q5K {
  static constexpr int kRun = 32;
  static constexpr int kTop = 31;
  static constexpr int kTopScale = 63;
  static constexpr const auto& kInsets = kInsets5Bit;
};

// A block's parameters, d and dmin as the half will be read.
template <class Format>
struct Block {
  static constexpr int kRuns = kBlock / Format::kRun;
  float d = 0.0f;
  float dmin = 0.0f;
  int scale[kRuns] = {};
  int min[kRuns] = {};
  float error[kRuns] = {};

  float total_error() const {
    float sum = 0.0f;
    for (const float run_error : error) sum += run_error;
    return sum;
  }
};

template <class Format>
struct Source {
  static constexpr int kRuns = kBlock / Format::kRun;
  const float* values;
  const float* weights;
  RunSums sums[kRuns];
  AffineFit fits[kRuns];

  Run run(int index) const { return {values + index * Format::kRun, weights + index * Format::kRun}; }
};

template <class Format>
float run_error(Run run, const Block<Format>& block, int scale, int min) {
  return affine_error<Format::kRun, Format::kTop>(run, block.d * static_cast<float>(scale),
                                                  -(block.dmin * static_cast<float>(min)));
}

template <class Format>
int nearest_scale(float value, float inverse) {
  return static_cast<int>(nearest_code(value * inverse, 0.0f, static_cast<float>(Format::kTopScale)));
}

// Integers nearest to the sub-blocks' own fits for given d and dmin. The minimum is fitted to the rounded
// scale: about the middle of the codes rather than their lower end.
template <class Format>
Block<Format> round_fits(const Source<Format>& source, float d, float dmin) {
  Block<Format> block{.d = as_half(d), .dmin = as_half(dmin)};
  const float inverse = inverse_or_zero(block.d);
  const float min_inverse = inverse_or_zero(block.dmin);
  for (int run = 0; run < Source<Format>::kRuns; ++run) {
    const AffineFit& fit = source.fits[run];
    block.scale[run] = nearest_scale<Format>(fit.scale, inverse);
    const float rounded = block.d * static_cast<float>(block.scale[run]);
    const float shift = (fit.scale - rounded) * 0.5f * static_cast<float>(Format::kTop);
    block.min[run] = nearest_scale<Format>(-fit.low - shift, min_inverse);
    block.error[run] = run_error(source.run(run), block, block.scale[run], block.min[run]);
  }
  return block;
}

// Tries the neighbours of every sub-block's two integers.
template <class Format>
void improve_integers(const Source<Format>& source, Block<Format>& block) {
  for (int run = 0; run < Source<Format>::kRuns; ++run) {
    const int scale = block.scale[run];
    const int min = block.min[run];
    for (int near_scale = scale - 1; near_scale <= scale + 1; ++near_scale) {
      for (int near_min = min - 1; near_min <= min + 1; ++near_min) {
        if (near_scale < 0 || near_scale > Format::kTopScale) continue;
        if (near_min < 0 || near_min > Format::kTopScale) continue;
        if (near_scale == scale && near_min == min) continue;
        const float error = run_error(source.run(run), block, near_scale, near_min);
        if (!(error < block.error[run])) continue;
        block.error[run] = error;
        block.scale[run] = near_scale;
        block.min[run] = near_min;
      }
    }
  }
}

// d and dmin of least squares for the codes that the block now has; kept if the rounded result is better.
template <class Format>
bool refit(const Source<Format>& source, Block<Format>& block) {
  double uu = 0.0, uv = 0.0, vv = 0.0, xu = 0.0, xv = 0.0;  // u = scale * q, v = -min
  for (int run = 0; run < Source<Format>::kRuns; ++run) {
    const double scale = block.scale[run];
    const double min = block.min[run];
    const CodeSums code = code_sums<Format::kRun, Format::kTop>(
        source.run(run), -(block.dmin * static_cast<float>(min)),
        inverse_or_zero(block.d * static_cast<float>(scale)));
    uu += scale * scale * code.qq;
    uv -= scale * min * code.q;
    vv += min * min * source.sums[run].w;
    xu += scale * code.xq;
    xv -= min * source.sums[run].wx;
  }
  Block<Format> next = block;
  const double determinant = uu * vv - uv * uv;
  if (determinant > 1e-9 * uu * vv) {
    next.d = as_half(static_cast<float>((vv * xu - uv * xv) / determinant));
    next.dmin = as_half(static_cast<float>((uu * xv - uv * xu) / determinant));
  } else if (uu > 0.0) {
    next.d = as_half(static_cast<float>((xu - uv * static_cast<double>(block.dmin)) / uu));
  }
  if (next.d < 0.0f || next.dmin < 0.0f) return false;
  for (int run = 0; run < Source<Format>::kRuns; ++run)
    next.error[run] = run_error(source.run(run), next, next.scale[run], next.min[run]);
  if (!(next.total_error() < block.total_error())) return false;
  block = next;
  return true;
}

template <class Format>
Block<Format> fit_block(const float* values, const float* weights) {
  Source<Format> source{.values = values, .weights = weights, .sums = {}, .fits = {}};
  float top_scale = 0.0f;
  float top_min = 0.0f;
  for (int run = 0; run < Source<Format>::kRuns; ++run) {
    source.sums[run] = run_sums<Format::kRun>(source.run(run));
    source.fits[run] =
        search_affine<Format::kRun, Format::kTop>(source.run(run), source.sums[run], Format::kInsets, true);
    top_scale = std::max(top_scale, source.fits[run].scale);
    top_min = std::max(top_min, -source.fits[run].low);
  }
  // A smaller d makes the integers finer and clips the largest of them.
  const float d = top_scale / static_cast<float>(Format::kTopScale);
  const float dmin = top_min / static_cast<float>(Format::kTopScale);
  Block<Format> best = round_fits(source, d, dmin);
  if constexpr (Format::kTopScale == 15) {
    for (const float factor : {0.8f, 0.87f, 0.93f, 1.06f}) {
      const Block<Format> next = round_fits(source, d * factor, best.dmin);
      if (next.total_error() < best.total_error()) best = next;
    }
    const float best_d = best.d;
    for (const float factor : {0.8f, 0.87f, 0.93f, 1.06f}) {
      const Block<Format> next = round_fits(source, best_d, dmin * factor);
      if (next.total_error() < best.total_error()) best = next;
    }
  }
  improve_integers(source, best);
  if (refit(source, best)) {
    improve_integers(source, best);
    refit(source, best);
  }
  return best;
}

// The codes of the whole block.
template <class Format>
void write_codes(const Block<Format>& block, const float* values, uint8_t* codes) {
  for (int run = 0; run < Block<Format>::kRuns; ++run) {
    const float inverse = inverse_or_zero(block.d * static_cast<float>(block.scale[run]));
    const float min = block.dmin * static_cast<float>(block.min[run]);
    for (int column = run * Format::kRun; column < (run + 1) * Format::kRun; ++column)
      codes[column] = static_cast<uint8_t>(
          nearest_code((values[column] + min) * inverse, 0.0f, static_cast<float>(Format::kTop)));
  }
}

// Eight scales and eight minima of six bits in twelve bytes.
void pack_six_bits(const int* scale, const int* min, uint8_t* out) {
  for (int run = 0; run < 4; ++run) {
    out[run] = static_cast<uint8_t>(scale[run] | (scale[run + 4] >> 4) << 6);
    out[run + 4] = static_cast<uint8_t>(min[run] | (min[run + 4] >> 4) << 6);
    out[run + 8] = static_cast<uint8_t>((scale[run + 4] & 15) | (min[run + 4] & 15) << 4);
  }
}

// Low nibbles are sub-block 2r, high ones 2r + 1.
void pack_nibbles(const uint8_t* codes, uint8_t* qs) {
  for (int pair = 0; pair < 4; ++pair) {
    const uint8_t* low = codes + 64 * pair;
    for (int byte = 0; byte < 32; ++byte)
      qs[32 * pair + byte] = static_cast<uint8_t>((low[byte] & 15) | (low[byte + 32] & 15) << 4);
  }
}

}  // namespace

void encode_q2_k(const float* values, const float* weights, uint8_t* block) {
  const Block<Q2K> fit = fit_block<Q2K>(values, weights);
  uint8_t codes[kBlock];
  write_codes(fit, values, codes);
  for (int run = 0; run < 16; ++run) block[run] = static_cast<uint8_t>(fit.scale[run] | fit.min[run] << 4);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* part = codes + 128 * half;
    for (int byte = 0; byte < 32; ++byte)
      block[16 + 32 * half + byte] = static_cast<uint8_t>(part[byte] | part[byte + 32] << 2 |
                                                          part[byte + 64] << 4 | part[byte + 96] << 6);
  }
  store_half(fit.d, block + 80);
  store_half(fit.dmin, block + 82);
}

void encode_q4_k(const float* values, const float* weights, uint8_t* block) {
  const Block<Q4K> fit = fit_block<Q4K>(values, weights);
  uint8_t codes[kBlock];
  write_codes(fit, values, codes);
  store_half(fit.d, block);
  store_half(fit.dmin, block + 2);
  pack_six_bits(fit.scale, fit.min, block + 4);
  pack_nibbles(codes, block + 16);
}

void encode_q5_k(const float* values, const float* weights, uint8_t* block) {
  const Block<Q5K> fit = fit_block<Q5K>(values, weights);
  uint8_t codes[kBlock];
  write_codes(fit, values, codes);
  store_half(fit.d, block);
  store_half(fit.dmin, block + 2);
  pack_six_bits(fit.scale, fit.min, block + 4);
  for (int byte = 0; byte < 32; ++byte) {
    int bits = 0;
    for (int run = 0; run < 8; ++run) bits |= (codes[32 * run + byte] >> 4) << run;
    block[16 + byte] = static_cast<uint8_t>(bits);
  }
  pack_nibbles(codes, block + 48);
}

}  // namespace fathom
