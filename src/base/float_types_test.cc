#include "base/float_types.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fathom {
namespace {

const float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(E4m3, All256Codes) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    const float found = float_from_e4m3(static_cast<uint8_t>(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(found));
      continue;
    }
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                          : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    EXPECT_EQ(bits_of_float(found), bits_of_float((code & 0x80) != 0 ? -magnitude : magnitude)) << code;
    EXPECT_EQ(e4m3_from_float(found), code);
  }
}

TEST(E4m3, EveryMidpointGoesToTheEvenCode) {
  for (int code = 0; code < 0x7E; ++code) {
    const float low = float_from_e4m3(static_cast<uint8_t>(code));
    const float high = float_from_e4m3(static_cast<uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(e4m3_from_float(middle), code + (code & 1)) << code;
    EXPECT_EQ(e4m3_from_float(std::nextafter(middle, 0.0f)), code) << code;
    EXPECT_EQ(e4m3_from_float(std::nextafter(middle, kInf)), code + 1) << code;
    EXPECT_EQ(e4m3_from_float(-middle), (code + (code & 1)) | 0x80) << code;
  }
}

TEST(E4m3, SaturatesAndKeepsNan) {
  EXPECT_EQ(e4m3_from_float(449.0f), 0x7E);
  EXPECT_EQ(e4m3_from_float(1e30f), 0x7E);
  EXPECT_EQ(e4m3_from_float(-kInf), 0xFE);
  EXPECT_EQ(e4m3_from_float(kNan), 0x7F);
  EXPECT_EQ(e4m3_from_float(-0.0f), 0x80);
  EXPECT_EQ(e4m3_from_float(1e-40f), 0x00);
}

TEST(E8m0, All256Codes) {
  for (int code = 0; code < 255; ++code)
    EXPECT_EQ(float_from_e8m0(static_cast<uint8_t>(code)), std::ldexp(1.0f, code - 127)) << code;
  EXPECT_TRUE(std::isnan(float_from_e8m0(255)));
}

TEST(E2m1, CodesAndTies) {
  const float magnitudes[8] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  for (int code = 0; code < 8; ++code) {
    EXPECT_EQ(float_from_e2m1(static_cast<uint8_t>(code)), magnitudes[code]);
    const float negative = float_from_e2m1(static_cast<uint8_t>(code | 8));
    EXPECT_EQ(bits_of_float(negative), bits_of_float(-magnitudes[code]));
    EXPECT_EQ(e2m1_from_float(magnitudes[code]), code);
    EXPECT_EQ(e2m1_from_float(-magnitudes[code]), code | 8);
  }
  for (int code = 0; code < 7; ++code) {
    const float middle = (magnitudes[code] + magnitudes[code + 1]) / 2;
    EXPECT_EQ(e2m1_from_float(middle), code + (code & 1)) << middle;
    EXPECT_EQ(e2m1_from_float(std::nextafter(middle, 0.0f)), code) << middle;
    EXPECT_EQ(e2m1_from_float(std::nextafter(middle, kInf)), code + 1) << middle;
    EXPECT_EQ(e2m1_from_float(-middle), (code + (code & 1)) | 8) << middle;
  }
  EXPECT_EQ(e2m1_from_float(kInf), 7);
  EXPECT_EQ(e2m1_from_float(-1e-30f), 8);
}

TEST(F16, AllCodesThereAndBack) {
  for (int code = 0; code < 0x10000; ++code) {
    const uint16_t half = static_cast<uint16_t>(code);
    const float value = float_from_f16(half);
    const int exponent = (code >> 10) & 31;
    const int mantissa = code & 1023;
    if (exponent == 31 && mantissa != 0) {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_EQ(f16_from_float(value) & 0x7E00, 0x7E00);
      continue;
    }
    float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                    : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    if (exponent == 31) magnitude = kInf;
    ASSERT_EQ(bits_of_float(value), bits_of_float((code & 0x8000) != 0 ? -magnitude : magnitude)) << code;
    ASSERT_EQ(f16_from_float(value), half);
  }
}

TEST(F16, MidpointsAndOverflow) {
  for (int code = 0; code < 0x7BFF; ++code) {
    const float middle = (float_from_f16(static_cast<uint16_t>(code)) +
                          float_from_f16(static_cast<uint16_t>(code + 1))) / 2;
    ASSERT_EQ(f16_from_float(middle), code + (code & 1)) << code;
    ASSERT_EQ(f16_from_float(std::nextafter(middle, 0.0f)), code) << code;
    ASSERT_EQ(f16_from_float(-std::nextafter(middle, kInf)), (code + 1) | 0x8000) << code;
  }
  EXPECT_EQ(f16_from_float(65519.0f), 0x7BFF);
  EXPECT_EQ(f16_from_float(65520.0f), 0x7C00);
  EXPECT_EQ(f16_from_float(-kInf), 0xFC00);
}

TEST(Bf16, RoundsToEvenAndKeepsNan) {
  EXPECT_EQ(bf16_from_float(1.0f), 0x3F80);
  EXPECT_EQ(bf16_from_float(float_from_bits(0x3F808000)), 0x3F80);  // tie: even stays
  EXPECT_EQ(bf16_from_float(float_from_bits(0x3F818000)), 0x3F82);  // tie: odd goes up
  EXPECT_EQ(bf16_from_float(float_from_bits(0x3F808001)), 0x3F81);
  EXPECT_EQ(bf16_from_float(float_from_bits(0x3F807FFF)), 0x3F80);
  EXPECT_EQ(bf16_from_float(float_from_bits(0x7F7FFFFF)), 0x7F80);  // rounds to infinity
  EXPECT_EQ(bf16_from_float(-kInf), 0xFF80);
  EXPECT_EQ(bf16_from_float(float_from_bits(0x00008000)), 0x0000);  // subnormal tie
  EXPECT_EQ(bf16_from_float(float_from_bits(0x00018000)), 0x0002);
  EXPECT_EQ(bits_of_float(round_to_bf16(-0.0f)), 0x80000000u);
  // A NaN whose payload lies in the lower half must not turn into infinity.
  EXPECT_TRUE(std::isnan(round_to_bf16(float_from_bits(0x7F800001))));
  EXPECT_TRUE(std::isnan(round_to_bf16(float_from_bits(0xFFFFFFFF))));
}

TEST(PowerOfTwoCeiling, ExactPowersStay) {
  EXPECT_EQ(power_of_two_ceiling(1.0f), 1.0f);
  EXPECT_EQ(power_of_two_ceiling(std::nextafter(1.0f, 2.0f)), 2.0f);
  EXPECT_EQ(power_of_two_ceiling(std::nextafter(1.0f, 0.0f)), 1.0f);
  EXPECT_EQ(power_of_two_ceiling(0x1p-126f), 0x1p-126f);
  EXPECT_EQ(power_of_two_ceiling(3e37f), 0x1p125f);
}

}  // namespace
}  // namespace fathom
