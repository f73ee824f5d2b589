#include "tensor/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/float_types.h"

namespace fathom {
namespace {

using Fake = void (*)(const float*, float*, int64_t);
using Encode = void (*)(const float*, uint8_t*, int64_t);
using Decode = void (*)(const uint8_t*, float*, int64_t);
struct Quantiser {
  const char* name;
  Fake fake;
  Encode encode;
  Decode decode;
  int64_t (*row_bytes)(int64_t);
};
const Quantiser kQuantisers[] = {
    {"q8", fake_quantize_q8, encode_q8_row, decode_q8_row, q8_row_bytes},
    {"q4k", fake_quantize_q4k, encode_q4k_row, decode_q4k_row, q4k_row_bytes},
    {"q4c", fake_quantize_q4c, encode_q4c_row, decode_q4c_row, q4c_row_bytes},
};

std::vector<float> faked(const Quantiser& quantiser, const std::vector<float>& in) {
  std::vector<float> out(in.size());
  quantiser.fake(in.data(), out.data(), static_cast<int64_t>(in.size()));
  return out;
}

std::vector<uint8_t> packed(const Quantiser& quantiser, const std::vector<float>& in) {
  const int64_t count = static_cast<int64_t>(in.size());
  std::vector<uint8_t> bytes(static_cast<size_t>(quantiser.row_bytes(count)));
  quantiser.encode(in.data(), bytes.data(), count);
  return bytes;
}

// `head` first, then `fill` up to `count` values.
std::vector<float> group(std::vector<float> head, size_t count, float fill = 0.0f) {
  head.resize(count, fill);
  return head;
}

TEST(Quantize, RowBytesOfTheModel) {
  EXPECT_EQ(q8_row_bytes(512), 528);
  EXPECT_EQ(q4k_row_bytes(128), 68);
  EXPECT_EQ(q4c_row_bytes(512), 288);
}

TEST(Quantize, ScaleConstants) {
  EXPECT_EQ(bits_of_float(1.0f / 448.0f), 0x3B124925u);
  EXPECT_EQ(bits_of_float(1.0f / 6.0f), 0x3E2AAAABu);
}

TEST(QuantizeQ8, PowerOfTwoScales) {
  // 448 is exactly representable at scale 1; one bfloat16 step more needs scale 2.
  EXPECT_EQ(packed(kQuantisers[0], group({448.0f}, 32))[32], 127);
  EXPECT_EQ(packed(kQuantisers[0], group({450.0f}, 32))[32], 128);
  EXPECT_EQ(packed(kQuantisers[0], group({1.0f}, 32))[32], 127 - 8);  // 1/448 -> 2^-8
  EXPECT_EQ(packed(kQuantisers[0], group({-448.0f}, 32))[0], 0xFE);
}

TEST(QuantizeQ8, TiesToEvenAndSubnormalSteps) {
  // Scale 1. Around 16 the step is 2: 17 lies between 16 (even) and 18, 19 between 18 and 20 (even).
  const auto out =
      faked(kQuantisers[0], group({448.0f, 17.0f, 19.0f, -17.0f, 0x1p-10f, 0x1.8p-9f, 436.0f}, 32));
  EXPECT_EQ(out[1], 16.0f);
  EXPECT_EQ(out[2], 20.0f);
  EXPECT_EQ(out[3], -16.0f);
  EXPECT_EQ(out[4], 0.0f);      // half of the smallest code: to even, zero
  EXPECT_EQ(out[5], 0x1p-8f);   // 1.5 steps: to 2
  EXPECT_EQ(out[6], 448.0f);    // 436 is nearer to 448 than to 416
}

TEST(QuantizeQ8, FloorOfTheScale) {
  // Below 1e-4 the scale stays at P2(1e-4 / 448) = 2^-22.
  const auto bytes = packed(kQuantisers[0], group({1e-7f}, 32));
  EXPECT_EQ(bytes[32], 127 - 22);
  EXPECT_EQ(packed(kQuantisers[0], group({}, 32))[32], 127 - 22);
  const auto out = faked(kQuantisers[0], group({0x1p-31f, 0x1p-32f}, 32));
  EXPECT_EQ(out[0], 0x1p-31f);  // the smallest code, 2^-9, at scale 2^-22
  EXPECT_EQ(out[1], 0.0f);
}

TEST(QuantizeQ4k, ScalesAndTies) {
  EXPECT_EQ(packed(kQuantisers[1], group({6.0f}, 32))[16], 127);
  EXPECT_EQ(packed(kQuantisers[1], group({6.03125f}, 32))[16], 128);
  EXPECT_EQ(packed(kQuantisers[1], group({}, 32))[16], 1);  // 2^-126
  const auto out = faked(kQuantisers[1], group({6, .25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -.25f, -5}, 32));
  const float expected[] = {6, 0, 1, 1, 2, 2, 4, 4, -0.0f, -4};
  for (size_t at = 0; at < std::size(expected); ++at)
    EXPECT_EQ(bits_of_float(out[at]), bits_of_float(expected[at])) << at;
}

TEST(QuantizeQ4k, EvenElementInTheLowNibble) {
  const auto bytes = packed(kQuantisers[1], group({6.0f, -1.0f, 0.5f}, 32));
  EXPECT_EQ(bytes[0], 0xA7);
  EXPECT_EQ(bytes[1], 0x01);
  EXPECT_EQ(bytes[15], 0x00);
}

TEST(QuantizeQ4c, ScaleIsE4m3OfATrueDivision) {
  EXPECT_EQ(packed(kQuantisers[2], group({6.0f}, 16))[8], 0x38);   // 1
  EXPECT_EQ(packed(kQuantisers[2], group({7.0f}, 16))[8], 0x39);   // 7/6 = 1.1667 -> 1.125
  EXPECT_EQ(packed(kQuantisers[2], group({}, 16))[8], 0x01);       // 2^-9
  EXPECT_EQ(packed(kQuantisers[2], group({1e30f}, 16))[8], 0x7E);  // saturates at 448
  const auto out = faked(kQuantisers[2], group({7.0f, 1.125f, 3.9375f, -1e-9f}, 16));
  EXPECT_EQ(out[0], 6.75f);      // 7 / 1.125 = 6.22, clamped to 6
  EXPECT_EQ(out[1], 1.125f);
  EXPECT_EQ(out[2], 4.5f);       // 3.9375 / 1.125 = 3.5, a tie: to 4
  EXPECT_EQ(bits_of_float(out[3]), 0x80000000u);
  EXPECT_EQ(faked(kQuantisers[2], group({1e30f}, 16))[0], 2688.0f);
}

// Every scale division, tie and clamp goes through the packed form unchanged.
TEST(Quantize, DecodeOfEncodeEqualsFake) {
  std::mt19937 random(7);
  for (const Quantiser& quantiser : kQuantisers) {
    SCOPED_TRACE(quantiser.name);
    for (int exponent = -140; exponent <= 120; exponent += 4) {
      std::vector<float> in(128);
      std::normal_distribution<float> normal;
      for (float& value : in) value = std::ldexp(normal(random), exponent);
      in[5] = -0.0f;
      const auto fake = faked(quantiser, in);
      const auto bytes = packed(quantiser, in);
      std::vector<float> out(in.size());
      quantiser.decode(bytes.data(), out.data(), 128);
      std::vector<float> in_place = in;
      quantiser.fake(in_place.data(), in_place.data(), 128);
      for (size_t at = 0; at < in.size(); ++at) {
        ASSERT_EQ(bits_of_float(out[at]), bits_of_float(fake[at])) << exponent << " " << at;
        ASSERT_EQ(bits_of_float(in_place[at]), bits_of_float(fake[at])) << exponent << " " << at;
        ASSERT_TRUE(std::isfinite(out[at])) << exponent << " " << at;
      }
      EXPECT_EQ(bits_of_float(out[5]), 0x80000000u);
    }
  }
}

// Values already on the grid stay, so a cache row may be packed, unpacked and packed again.
TEST(Quantize, IsIdempotentForPowerOfTwoScales) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (const Quantiser* quantiser : {&kQuantisers[0], &kQuantisers[1]}) {
    std::vector<float> in(4096);
    for (float& value : in) value = round_to_bf16(normal(random));
    const auto once = faked(*quantiser, in);
    EXPECT_EQ(faked(*quantiser, once), once) << quantiser->name;
  }
}

TEST(Quantize, ResultsAreBfloat16ForBfloat16Inputs) {
  std::mt19937 random(13);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  for (const Quantiser& quantiser : kQuantisers) {
    std::vector<float> in(4096);
    for (float& value : in) value = round_to_bf16(normal(random));
    for (const float value : faked(quantiser, in)) ASSERT_EQ(round_to_bf16(value), value) << quantiser.name;
  }
}

// The error is at most half a step: 1/16 of the value for e4m3 (above its subnormals), 1/3 for e2m1's
// widest gap relative to its lower end.
TEST(QuantizeQ8, ErrorBound) {
  std::mt19937 random(17);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> in(4096);
  for (float& value : in) value = round_to_bf16(normal(random));
  const auto out = faked(kQuantisers[0], in);
  for (size_t at = 0; at < in.size(); ++at)
    EXPECT_LE(std::fabs(out[at] - in[at]), std::max(std::fabs(in[at]) / 16, 0x1p-16f)) << in[at];
}

TEST(Quantize, LargestFloat) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(packed(kQuantisers[0], group({largest}, 32))[32], 127 + 120);
  EXPECT_EQ(packed(kQuantisers[1], group({largest}, 32))[16], 127 + 126);
  EXPECT_EQ(faked(kQuantisers[0], group({0x1.ep127f}, 32))[0], 0x1.ep127f);
  EXPECT_TRUE(std::isinf(faked(kQuantisers[0], group({largest}, 32))[0]));
  EXPECT_EQ(faked(kQuantisers[2], group({-largest}, 16))[0], -2688.0f);
}

}  // namespace
}  // namespace fathom
