#include "tensor/quantize.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/float_types.h"

namespace fathom {
namespace {

float largest_magnitude(const float* in, int count) {
  float largest = 0.0f;
  for (int element = 0; element < count; ++element) largest = std::max(largest, std::fabs(in[element]));
  return largest;
}

uint8_t e8m0_of_power(float power) { return static_cast<uint8_t>(bits_of_float(power) >> 23); }

// Each quantiser: how a group's scale follows from its largest magnitude, and the two element conversions.
struct Q8 {
  static constexpr int kGroup = kQ8Group;
  static constexpr int kCodesPerByte = 1;
  static uint8_t scale_code(float largest) {
    return e8m0_of_power(power_of_two_ceiling(std::max(largest, 1e-4f) * (1.0f / 448.0f)));
  }
  static float scale(uint8_t code) { return float_from_e8m0(code); }
  static uint8_t encode(float value) { return e4m3_from_float(value); }
  static float decode(uint8_t code) { return float_from_e4m3(code); }
};

struct Q4k {
  static constexpr int kGroup = kQ4kGroup;
  static constexpr int kCodesPerByte = 2;
  static uint8_t scale_code(float largest) {
    return e8m0_of_power(power_of_two_ceiling(std::max(largest, 6.0f * 0x1p-126f) * (1.0f / 6.0f)));
  }
  static float scale(uint8_t code) { return float_from_e8m0(code); }
  static uint8_t encode(float value) { return e2m1_from_float(value); }
  static float decode(uint8_t code) { return float_from_e2m1(code); }
};

struct Q4c {
  static constexpr int kGroup = kQ4cGroup;
  static constexpr int kCodesPerByte = 2;
  static uint8_t scale_code(float largest) {
    return e4m3_from_float(std::max(largest, 6.0f * 0x1p-9f) / 6.0f);
  }
  static float scale(uint8_t code) { return float_from_e4m3(code); }
  static uint8_t encode(float value) { return e2m1_from_float(value); }
  static float decode(uint8_t code) { return float_from_e2m1(code); }
};

// Codes of one group; returns the scale's code. Both element conversions saturate, which is the clamp.
template <class Format>
uint8_t quantize_group(const float* in, uint8_t* codes) {
  const uint8_t scale_code = Format::scale_code(largest_magnitude(in, Format::kGroup));
  const float scale = Format::scale(scale_code);
  for (int element = 0; element < Format::kGroup; ++element)
    codes[element] = Format::encode(in[element] / scale);
  return scale_code;
}

template <class Format>
void fake_quantize(const float* in, float* out, int64_t count) {
  FATHOM_CHECK(count % Format::kGroup == 0, "{} values in groups of {}", count, Format::kGroup);
  uint8_t codes[Format::kGroup];
  for (int64_t start = 0; start < count; start += Format::kGroup) {
    const float scale = Format::scale(quantize_group<Format>(in + start, codes));
    for (int element = 0; element < Format::kGroup; ++element)
      out[start + element] = Format::decode(codes[element]) * scale;
  }
}

template <class Format>
void encode_row(const float* in, uint8_t* packed, int64_t count) {
  FATHOM_CHECK(count % Format::kGroup == 0, "{} values in groups of {}", count, Format::kGroup);
  uint8_t* scales = packed + count / Format::kCodesPerByte;
  uint8_t codes[Format::kGroup];
  for (int64_t start = 0; start < count; start += Format::kGroup) {
    scales[start / Format::kGroup] = quantize_group<Format>(in + start, codes);
    for (int element = 0; element < Format::kGroup; element += Format::kCodesPerByte) {
      const uint8_t high = Format::kCodesPerByte == 2 ? static_cast<uint8_t>(codes[element + 1] << 4) : 0;
      packed[(start + element) / Format::kCodesPerByte] = codes[element] | high;
    }
  }
}

template <class Format>
void decode_row(const uint8_t* packed, float* out, int64_t count) {
  FATHOM_CHECK(count % Format::kGroup == 0, "{} values in groups of {}", count, Format::kGroup);
  const uint8_t* scales = packed + count / Format::kCodesPerByte;
  for (int64_t element = 0; element < count; ++element) {
    uint8_t code = packed[element / Format::kCodesPerByte];
    if (Format::kCodesPerByte == 2) code = element % 2 == 0 ? code & 15 : code >> 4;
    out[element] = Format::decode(code) * Format::scale(scales[element / Format::kGroup]);
  }
}

}  // namespace

void fake_quantize_q8(const float* in, float* out, int64_t count) { fake_quantize<Q8>(in, out, count); }
void encode_q8_row(const float* in, uint8_t* packed, int64_t count) { encode_row<Q8>(in, packed, count); }
void decode_q8_row(const uint8_t* packed, float* out, int64_t count) { decode_row<Q8>(packed, out, count); }

void fake_quantize_q4k(const float* in, float* out, int64_t count) { fake_quantize<Q4k>(in, out, count); }
void encode_q4k_row(const float* in, uint8_t* packed, int64_t count) { encode_row<Q4k>(in, packed, count); }
void decode_q4k_row(const uint8_t* packed, float* out, int64_t count) { decode_row<Q4k>(packed, out, count); }

void fake_quantize_q4c(const float* in, float* out, int64_t count) { fake_quantize<Q4c>(in, out, count); }
void encode_q4c_row(const float* in, uint8_t* packed, int64_t count) { encode_row<Q4c>(in, packed, count); }
void decode_q4c_row(const uint8_t* packed, float* out, int64_t count) { decode_row<Q4c>(packed, out, count); }

}  // namespace fathom
