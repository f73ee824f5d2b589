#include "quantize/formats/affine_encode.h"

#include <cstring>

#include "base/check.h"
#include "quantize/formats/fit.h"

namespace fathom {
namespace {

constexpr Inset kFewCodes[] = {{0.0f, 0.0f},   {0.05f, 0.05f}, {0.1f, 0.1f},  {0.15f, 0.15f}, {0.2f, 0.2f},
                               {0.25f, 0.25f}, {0.1f, 0.2f},   {0.2f, 0.1f},  {0.0f, 0.15f},  {0.15f, 0.0f}};
constexpr Inset kManyCodes[] = {{0.0f, 0.0f},   {0.02f, 0.02f}, {0.045f, 0.045f}, {0.07f, 0.07f},
                                {0.0f, 0.04f},  {0.04f, 0.0f},  {-0.015f, 0.015f}, {0.015f, -0.015f}};
constexpr Inset kFineCodes[] = {{0.0f, 0.0f}, {0.004f, 0.004f}, {0.0f, 0.006f}, {0.006f, 0.0f}};

// A number as the type of the scales holds it, saturated, `steps` representable numbers away from nearest.
float round_to_type(float value, DType type, int steps = 0) {
  if (type == DType::kF16) {
    const int half = half_of_scale(value) + steps;
    return (half & 0x7FFF) > 0x7BFF ? value : float_from_f16(static_cast<uint16_t>(half));
  }
  if (type == DType::kBF16) {
    const float limited = std::clamp(value, -0x1.FEp127f, 0x1.FEp127f);
    return float_from_bf16(static_cast<uint16_t>(bf16_from_float(limited) + steps));
  }
  return value;
}

void store(float value, DType type, uint8_t* out) {
  if (type == DType::kF32) {
    std::memcpy(out, &value, 4);
    return;
  }
  const uint16_t bits = type == DType::kF16 ? half_of_scale(value) : bf16_from_float(value);
  out[0] = static_cast<uint8_t>(bits);
  out[1] = static_cast<uint8_t>(bits >> 8);
}

template <int kCount, int kTop, int kInsets>
void encode(Run run, const Inset (&insets)[kInsets], const AffineGroupOut& out) {
  const RunSums sums = run_sums<kCount>(run);
  const AffineFit fit = search_affine<kCount, kTop>(run, sums, insets, false);
  // Rounding the scale moves the far codes, and the bias that suits it is not that of the free fit.
  float scale = 0.0f;
  float bias = round_to_type(fit.low, out.scale_type);
  float best_error = affine_error<kCount, kTop>(run, scale, bias);
  for (const int steps : {0, -1, 1}) {
    if (fit.scale == 0.0f) break;
    const float near = round_to_type(fit.scale, out.scale_type, steps);
    if (!(near > 0.0f)) continue;
    const CodeSums code = code_sums<kCount, kTop>(run, fit.low, 1.0f / near);
    for (const int bias_steps : {0, -1, 1}) {
      const float near_bias = round_to_type((sums.wx - near * code.q) / sums.w, out.scale_type, bias_steps);
      const float error = affine_error<kCount, kTop>(run, near, near_bias);
      if (!(error < best_error)) continue;
      best_error = error;
      scale = near;
      bias = near_bias;
    }
  }
  store(scale, out.scale_type, out.scale);
  store(bias, out.scale_type, out.bias);

  std::memset(out.codes, 0, static_cast<size_t>(kCount * out.bits / 8));
  const float inverse = inverse_or_zero(scale);
  for (int column = 0; column < kCount; ++column) {
    const float code = nearest_code((run.x[column] - bias) * inverse, 0.0f, static_cast<float>(kTop));
    const int bit = column * out.bits;
    const int shifted = static_cast<int>(code) << (bit % 8);
    out.codes[bit / 8] |= static_cast<uint8_t>(shifted);
    if (bit % 8 + out.bits > 8) out.codes[bit / 8 + 1] |= static_cast<uint8_t>(shifted >> 8);
  }
}

template <int kCount>
void encode_bits(Run run, const AffineGroupOut& out) {
  switch (out.bits) {
    case 2: return encode<kCount, 3>(run, kFewCodes, out);
    case 3: return encode<kCount, 7>(run, kFewCodes, out);
    case 4: return encode<kCount, 15>(run, kManyCodes, out);
    case 5: return encode<kCount, 31>(run, kManyCodes, out);
    case 6: return encode<kCount, 63>(run, kFineCodes, out);
    case 8: return encode<kCount, 255>(run, kFineCodes, out);
    default: FATHOM_CHECK(false, "affine codes of {} bits", out.bits);
  }
}

}  // namespace

void encode_affine_group(const float* values, const float* weights, const AffineGroupOut& out) {
  switch (out.group) {
    case 32: return encode_bits<32>({values, weights}, out);
    case 64: return encode_bits<64>({values, weights}, out);
    case 128: return encode_bits<128>({values, weights}, out);
    default: FATHOM_CHECK(false, "affine groups of {}", out.group);
  }
}

}  // namespace fathom
