#include "quantize/formats/small_encode.h"

#include <cmath>

#include "quantize/formats/symmetric_fit.h"

namespace fathom {
namespace {

constexpr int kCount = 32;

// The scale of least error among the given one and those of the halves next to it.
template <class Levels>
float best_half(Run run, float scale) {
  float best = as_half(scale);
  float best_error = level_error<Levels, kCount>(run, best);
  const uint16_t half = half_of_scale(scale);
  for (const int step : {-1, 1}) {
    const int near = half + step;
    if ((near & 0x7FFF) > 0x7BFF) continue;  // not a finite number
    const float candidate = float_from_f16(static_cast<uint16_t>(near));
    const float error = level_error<Levels, kCount>(run, candidate);
    if (!(error < best_error)) continue;
    best = candidate;
    best_error = error;
  }
  return best;
}

// Codes that the peak of a Q8_0 block may have. All are tried, so that a block that came from this encoder is
// found with no error at all and comes out with the values that went in.
constexpr float kLowestPeak = 118.0f;
constexpr float kHighestPeak = 127.0f;

// Weighted squared error of the nearest e2m1 values under a scale.
float e2m1_error(Run run, float scale) {
  const CodeRange<Lanes> range = lane_range(0.0f, 3.0f);
  const float inverse = 1.0f / scale;
  Lanes error{};
  for (int column = 0; column < kCount; column += kLanes) {
    const Lanes x = load_lanes(run.x + column);
    const Lanes magnitude = (x < 0.0f ? -x : x) * inverse;
    // Steps of .5 up to 2, of 1 up to 4 and of 2 up to 6.
    const Lanes fine = nearest_integer(magnitude * 2.0f) * 0.5f;
    const Lanes middle = nearest_integer(magnitude);
    const Lanes coarse = range.nearest(magnitude * 0.5f) * 2.0f;
    const Lanes upper = middle < 4.0f ? middle : coarse;
    const Lanes off = (magnitude - (magnitude < 2.0f ? fine : upper)) * scale;
    error += load_lanes(run.w + column) * (off * off);
  }
  return sum_of(error);
}

struct E2m1Group {
  uint8_t scale;
  uint8_t codes[kCount];
};

E2m1Group encode_e2m1(const float* values, const float* weights) {
  E2m1Group group{.scale = 127, .codes = {}};
  const float largest = std::fabs(peak<kCount>(values));
  if (largest == 0.0f) {
    for (int column = 0; column < kCount; ++column)
      group.codes[column] = std::signbit(values[column]) ? 8 : 0;
    return group;
  }
  // In units in which the peak is in [1, 2), squares neither overflow nor vanish.
  const int exponent = std::ilogb(largest);
  float scaled[kCount];
  for (int column = 0; column < kCount; ++column) scaled[column] = std::ldexp(values[column], -exponent);
  // The peak comes to [4, 8), [2, 4) or [8, 16). A still larger scale has no code that these lack.
  int best = 0;
  float best_error = 0.0f;
  for (const int candidate : {-2, -1, -3}) {
    const float error = e2m1_error({scaled, weights}, std::ldexp(1.0f, candidate));
    if (best != 0 && !(error < best_error)) continue;
    best = candidate;
    best_error = error;
  }
  group.scale = static_cast<uint8_t>(std::clamp(exponent + best + 127, 0, 254));
  const int shift = -(static_cast<int>(group.scale) - 127);
  for (int column = 0; column < kCount; ++column)
    group.codes[column] = e2m1_from_float(std::ldexp(values[column], shift));
  return group;
}

}  // namespace

void encode_q8_0(const float* values, const float* weights, uint8_t* block) {
  const Run run{values, weights};
  const float largest = std::fabs(peak<kCount>(values));
  using Levels = IntegerLevels<-127, 127>;
  float best = 0.0f;
  float best_error = level_error<Levels, kCount>(run, 0.0f);
  for (float target = kHighestPeak; target >= kLowestPeak; target -= 1.0f) {
    const float scale = as_half(largest / target);
    const float error = level_error<Levels, kCount>(run, scale);
    if (!(error < best_error)) continue;
    best = scale;
    best_error = error;
  }
  const LevelSums sums = level_sums<Levels, kCount>(run, inverse_or_zero(best));
  const float fitted = best_half<Levels>(run, sums.xq * inverse_or_zero(sums.qq));
  const bool peak_is_tried = best == 0.0f || nearest_integer(largest / fitted) >= kLowestPeak;
  if (peak_is_tried && level_error<Levels, kCount>(run, fitted) < best_error) best = fitted;
  store_half(best, block);
  int levels[kCount];
  write_levels<Levels>(values, kCount, inverse_or_zero(best), levels);
  for (int column = 0; column < kCount; ++column) block[2 + column] = static_cast<uint8_t>(levels[column]);
}

void encode_iq4_nl(const float* values, const float* weights, uint8_t* block) {
  static constexpr float kTargets[] = {-145.0f, -139.0f, -133.0f, -127.0f, -122.0f, -117.0f, -111.0f, -104.0f,
                                       98.0f,   104.0f,  108.0f,  113.0f,  118.0f,  123.0f,  129.0f};
  const Run run{values, weights};
  const float d = best_half<Iq4Levels>(run, search_scale<Iq4Levels, kCount>(run, kTargets));
  store_half(d, block);
  int levels[kCount];
  write_levels<Iq4Levels>(values, kCount, inverse_or_zero(d), levels);
  pack_iq4_levels(levels, block + 2);
}

void encode_mxfp4(const float* values, const float* weights, uint8_t* block) {
  const E2m1Group group = encode_e2m1(values, weights);
  block[0] = group.scale;
  for (int byte = 0; byte < 16; ++byte)
    block[1 + byte] = static_cast<uint8_t>(group.codes[byte] | group.codes[byte + 16] << 4);
}

uint8_t encode_fp4_group(const float* values, const float* weights, uint8_t* codes) {
  const E2m1Group group = encode_e2m1(values, weights);
  for (int byte = 0; byte < 16; ++byte)
    codes[byte] = static_cast<uint8_t>(group.codes[2 * byte] | group.codes[2 * byte + 1] << 4);
  return group.scale;
}

uint8_t fp8_scale(float largest) {
  if (largest == 0.0f) return 127;
  int exponent = 0;
  // largest = mantissa * 2^exponent with a mantissa in [.5, 1); 448 = .875 * 2^9.
  const float mantissa = std::frexp(largest, &exponent);
  return static_cast<uint8_t>(std::clamp(exponent - (mantissa > 0.875f ? 8 : 9) + 127, 0, 254));
}

void encode_fp8_codes(const float* values, int64_t count, uint8_t scale, uint8_t* codes) {
  const int shift = 127 - static_cast<int>(scale);
  for (int64_t column = 0; column < count; ++column)
    codes[column] = e4m3_from_float(std::ldexp(values[column], shift));
}

}  // namespace fathom
