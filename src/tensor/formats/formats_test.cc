// Blocks written by hand, one or two features a block; expected values are worked out from
// docs/formats/blocks.md.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "base/float_types.h"
#include "tensor/formats/affine.h"
#include "tensor/formats/codebooks.h"
#include "tensor/formats/engram_row.h"
#include "tensor/formats/fp4.h"
#include "tensor/formats/fp8.h"
#include "tensor/formats/iq4.h"
#include "tensor/formats/iq_grids.h"
#include "tensor/formats/k_quants.h"
#include "tensor/formats/q8_0.h"
#include "tensor/weight.h"

namespace fathom {
namespace {

constexpr int kHalf = 0x38;  // upper bytes of IEEE halves; the lower byte is 0
constexpr int kOne = 0x3C;
constexpr int kTwo = 0x40;

using Block = std::array<uint8_t, 264>;
using Values = std::array<float, 256>;
Block block_with(std::initializer_list<std::pair<int, int>> bytes) {
  Block block{};
  for (const auto& [at, value] : bytes) block[static_cast<size_t>(at)] = static_cast<uint8_t>(value);
  return block;
}
Values decoded(void (*decode)(const uint8_t*, float*), std::initializer_list<std::pair<int, int>> bytes) {
  Values out{};
  decode(block_with(bytes).data(), out.data());
  return out;
}

TEST(HandBlocks, Q8_0) {
  const Values out = decoded(decode_q8_0, {{1, kHalf}, {2, 0x80}, {33, 127}});
  EXPECT_EQ(out[0], -64.0f);
  EXPECT_EQ(out[31], 63.5f);
}

TEST(HandBlocks, Q2_K) {
  const Values out =
      decoded(decode_q2_k, {{9, 0x53}, {15, 0x01}, {16 + 48, 2}, {16 + 63, 0xC0}, {81, kTwo}, {83, kOne}});
  EXPECT_EQ(out[144], 7.0f);  // (2 * 3) * 2 - 1 * 5
  EXPECT_EQ(out[145], -5.0f);
  EXPECT_EQ(out[255], 6.0f);
  EXPECT_EQ(out[0], 0.0f);
}

TEST(HandBlocks, Q3_K) {
  // Sub-block 12: scale 5 | 2 << 4 = 37, less 32. Elements 200 (high bit set) and 201 (not set).
  const Values out = decoded(decode_q3_k, {{8, 0x40},
                                           {32 + 40, 0x30},
                                           {32 + 41, 0x30},
                                           {96 + 4, 0x50},
                                           {96 + 8, 0x80},
                                           {109, kOne}});
  EXPECT_EQ(out[200], 15.0f);
  EXPECT_EQ(out[201], -5.0f);
  EXPECT_EQ(out[0], 128.0f);  // scale 0 - 32 times value 0 - 4
}

TEST(HandBlocks, Q4_K) {
  const Values out = decoded(decode_q4_k, {{1, kOne},
                                           {3, kHalf},
                                           {4 + 1, 0xC0},
                                           {4 + 2, 0x3F},
                                           {4 + 5, 0x40},
                                           {4 + 6, 0x01},
                                           {4 + 9, 0x72},
                                           {16 + 32, 0x01},
                                           {16 + 67, 0x90}});
  EXPECT_EQ(out[163], 438.5f);  // scale 50, min 23
  EXPECT_EQ(out[160], -11.5f);
  EXPECT_EQ(out[64], 62.5f);
  EXPECT_EQ(out[32], 0.0f);
}

TEST(HandBlocks, Q5_K) {
  const Values out = decoded(decode_q5_k, {{1, kOne},
                                           {3, kHalf},
                                           {4 + 1, 0xC0},
                                           {4 + 5, 0x40},
                                           {4 + 9, 0x72},
                                           {16 + 3, 0x20},
                                           {48 + 67, 0x90}});
  EXPECT_EQ(out[163], 1238.5f);  // code 9 + 16
  EXPECT_EQ(out[162], -11.5f);
}

TEST(HandBlocks, Q6_K) {
  const Values out =
      decoded(decode_q6_k, {{69, 0xA0}, {128 + 37, 0x10}, {192 + 12, 0xFD}, {192 + 15, 1}, {209, kHalf}});
  EXPECT_EQ(out[197], 9.0f);   // (0.5 * -3) * (26 - 32)
  EXPECT_EQ(out[255], -16.0f);  // (0.5 * 1) * (0 - 32)
}

TEST(HandBlocks, Mxfp4) {
  const Values out = decoded(decode_mxfp4, {{0, 128}, {1, 0x9F}, {16, 0x82}});
  EXPECT_EQ(out[0], -12.0f);
  EXPECT_EQ(out[16], -1.0f);
  EXPECT_EQ(out[15], 2.0f);
  EXPECT_EQ(bits_of_float(out[31]), 0u);  // code 8 is +0 in GGUF
  EXPECT_EQ(decoded(decode_mxfp4, {{0, 0}, {1, 0x01}})[0], 0x1p-128f);
  EXPECT_TRUE(std::isnan(decoded(decode_mxfp4, {{0, 255}, {1, 0x01}})[0]));
}

TEST(HandBlocks, Fp4Row) {
  const Block codes = block_with({{0, 0x97}, {15, 0x80}, {16, 0x0D}});
  const uint8_t scales[2] = {126, 130};
  Values out{};
  decode_fp4_row(codes.data(), scales, 64, out.data());
  EXPECT_EQ(out[0], 3.0f);
  EXPECT_EQ(out[1], -0.25f);
  EXPECT_EQ(bits_of_float(out[31]), 0x80000000u);
  EXPECT_EQ(out[32], -24.0f);
}

TEST(HandBlocks, Iq1S) {
  const int qh = 3 << 12 | 0x8000;
  const Values out = decoded(decode_iq1_s, {{1, kOne}, {2 + 6, 1}, {34 + 3, qh >> 8}});
  EXPECT_EQ(out[48], 6.125f);   // 7 * (1 - 1/8)
  EXPECT_EQ(out[49], -7.875f);  // 7 * (-1 - 1/8)
  EXPECT_EQ(out[0], -0.875f);   // 1 * (-1 + 1/8)
}

TEST(HandBlocks, Iq1M) {
  // The half 0x3C00 lies in the top nibbles of the four scale words.
  const Values out = decoded(
      decode_iq1_m, {{13, 1}, {32 + 6, 0x80}, {48 + 2, 0x80}, {48 + 5, 0xC0}, {48 + 7, 0x30}});
  EXPECT_EQ(out[104], 4.375f);  // 5 * (1 - 1/8)
  EXPECT_EQ(out[105], -5.625f);
  EXPECT_EQ(out[96], -4.375f);  // 5 * (-1 + 1/8)
  EXPECT_EQ(out[0], -0.875f);
}

TEST(HandBlocks, Iq2Xxs) {
  const Values out = decoded(decode_iq2_xxs, {{1, kOne}, {2 + 24, 1}, {2 + 28, 1}, {2 + 31, 0x20}});
  EXPECT_EQ(out[96], -26.875f);  // 43 * 2.5 / 4; sign index 1 negates elements 0 and 7
  EXPECT_EQ(out[97], 5.0f);
  EXPECT_EQ(out[103], -5.0f);
  EXPECT_EQ(out[0], 1.0f);  // 8 * 0.5 / 4
}

TEST(HandBlocks, Iq2Xs) {
  const Values out = decoded(decode_iq2_xs, {{1, kOne}, {12, 1}, {13, 3 << 1}, {67, 0x02}});
  EXPECT_EQ(out[40], -26.875f);
  EXPECT_EQ(out[41], -5.0f);
  EXPECT_EQ(out[42], 5.0f);
}

TEST(HandBlocks, Iq2S) {
  const Values out = decoded(decode_iq2_s, {{1, kOne}, {8, 1}, {40, 0x80}, {67, 0x30}, {75, 0x20}});
  for (size_t element = 0; element < 8; ++element) {
    const float magnitude = 0.625f * static_cast<float>(kIq2SGrid.value[769][element]);
    EXPECT_EQ(out[48 + element], element == 7 ? -magnitude : magnitude);
  }
}

TEST(HandBlocks, Iq3Xxs) {
  const int tail = 0x10 << 7 | 1 << 28;
  const Values out =
      decoded(decode_iq3_xxs, {{1, kTwo}, {2 + 3, 1}, {66 + 1, tail >> 8 & 255}, {66 + 3, tail >> 24}});
  EXPECT_EQ(out[12], -30.0f);  // 20 * 2 * 1.5 / 2
  EXPECT_EQ(out[13], 6.0f);
  EXPECT_EQ(out[15], -6.0f);
  EXPECT_EQ(out[8], 6.0f);
}

TEST(HandBlocks, Iq3S) {
  const Values out = decoded(decode_iq3_s, {{1, kOne},
                                            {2 + 17, 1},
                                            {2 + 18, 1},
                                            {66 + 2, 0x04},
                                            {74 + 8, 0x10},
                                            {107, 0x03}});
  EXPECT_EQ(out[68], -21.0f);  // 3 * (1 + 2 * 3)
  EXPECT_EQ(out[69], 7.0f);
  EXPECT_EQ(out[72], 7.0f * static_cast<float>(kIq3SGrid.value[257][0]));
}

TEST(HandBlocks, Iq4) {
  const Values nl = decoded(decode_iq4_nl, {{1, kHalf}, {2 + 3, 0xF0}});
  EXPECT_EQ(nl[3], -63.5f);
  EXPECT_EQ(nl[19], 56.5f);
  const Values xs = decoded(decode_iq4_xs, {{1, kOne}, {2, 0xC0}, {4 + 1, 0x50}, {8 + 50, 0x0F}});
  EXPECT_EQ(xs[98], 2373.0f);  // 113 * (53 - 32)
  EXPECT_EQ(xs[114], -2667.0f);
  EXPECT_EQ(xs[0], 4064.0f);  // -127 * -32
}

TEST(HandBlocks, AffineCodesCrossBytes) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    Block stream{};
    const auto code_of = [bits](int element) { return (element * 7 + 3) & ((1 << bits) - 1); };
    for (int element = 0; element < 32; ++element)
      for (int bit = 0; bit < bits; ++bit)
        if ((code_of(element) >> bit) & 1)
          stream[static_cast<size_t>((element * bits + bit) / 8)] |= 1 << (element * bits + bit) % 8;
    Values out{};
    decode_affine_group({.codes = stream.data(), .scale = -0.5f, .bias = 3.0f, .bits = bits, .count = 32},
                        out.data());
    for (int element = 0; element < 32; ++element) {
      const float expected = 3.0f - 0.5f * static_cast<float>(code_of(element));
      EXPECT_EQ(out[static_cast<size_t>(element)], expected) << bits;
    }
  }
}

TEST(HandBlocks, AffineScaleTypes) {
  const Block codes = block_with({{0, 0x01}});
  const uint8_t f16[2] = {0, kTwo};
  const uint8_t f32[4] = {0, 0, 0x40, 0x40};  // 3
  WeightMatrix weight{.type = DType::kAffine, .rows = 1, .cols = 32};
  weight.data = reinterpret_cast<const std::byte*>(codes.data());
  weight.bits = 4, weight.group = 32;
  Values out{};
  weight.scale_type = DType::kF16;
  weight.scales = weight.biases = reinterpret_cast<const std::byte*>(f16);
  decode_row(weight, 0, out.data());
  EXPECT_EQ(out[0], 4.0f);
  EXPECT_EQ(out[1], 2.0f);
  weight.scale_type = DType::kF32;
  weight.scales = weight.biases = reinterpret_cast<const std::byte*>(f32);
  decode_row(weight, 0, out.data());
  EXPECT_EQ(out[0], 6.0f);
}

TEST(HandBlocks, Fp8TilesWithARaggedEdge) {
  // 33 x 40: the last row and the last 8 columns have tiles of their own.
  std::array<uint8_t, 33 * 40> codes;
  codes.fill(0x38);  // 1.0
  codes[32 * 40 + 39] = 0xC0;  // -2.0
  const uint8_t scales[4] = {127, 128, 129, 130};
  WeightMatrix weight{.type = DType::kFp8Tile32, .rows = 33, .cols = 40, .row_bytes = 40};
  weight.data = reinterpret_cast<const std::byte*>(codes.data());
  weight.scales = reinterpret_cast<const std::byte*>(scales);
  weight.scale_row_bytes = 2;
  Values out{};
  decode_row(weight, 31, out.data());
  EXPECT_EQ(out[31], 1.0f);
  EXPECT_EQ(out[32], 2.0f);
  decode_row(weight, 32, out.data());
  EXPECT_EQ(out[0], 4.0f);
  EXPECT_EQ(out[39], -16.0f);
}

TEST(HandBlocks, PlainTypesAtOddAddressesAndStrides) {
  const Block bytes = block_with({{1, 0x80}, {2, 0x3F}, {4, 0xC0}, {10, kHalf}, {11, 0}, {12, 0xC0}});
  const std::byte* start = reinterpret_cast<const std::byte*>(bytes.data());
  float out[2];
  decode_row({.type = DType::kBF16, .rows = 1, .cols = 2, .data = start + 1, .row_bytes = 4}, 0, out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -2.0f);
  decode_row({.type = DType::kF16, .rows = 2, .cols = 2, .data = start + 1, .row_bytes = 8}, 1, out);
  EXPECT_EQ(out[0], 0.5f);
  EXPECT_EQ(out[1], -2.0f);
  const double number = 1.0 + 0x1p-30;
  decode_row({.type = DType::kF64,
              .rows = 1,
              .cols = 1,
              .data = reinterpret_cast<const std::byte*>(&number),
              .row_bytes = 8},
             0, out);
  EXPECT_EQ(out[0], 1.0f);
}

TEST(EngramRow, Fp8OfAnyWidth) {
  // 64 columns in two tensors. e4m3 times a power of two needs 4 bits, so bfloat16 rounding keeps it.
  std::array<uint8_t, 64> codes{};
  codes[0] = 0x7E;   // 448
  codes[40] = 0x81;  // -2^-9
  const uint8_t scales[2] = {120, 127};
  float out[64];
  EXPECT_TRUE(decode_engram_row_fp8(codes.data(), scales, 64, out));
  EXPECT_EQ(out[0], 3.5f);
  EXPECT_EQ(out[40], -0x1p-9f);
  EXPECT_EQ(out[1], 0.0f);
}

TEST(EngramRow, InvalidBytesAreTold) {
  std::array<uint8_t, 32> codes{};
  uint8_t scale = 120;
  float out[32];
  EXPECT_TRUE(decode_engram_row_fp8(codes.data(), &scale, 32, out));
  for (const uint8_t nan : {0x7F, 0xFF}) {
    codes[31] = nan;
    EXPECT_FALSE(decode_engram_row_fp8(codes.data(), &scale, 32, out));
    EXPECT_TRUE(std::isnan(out[31]));
    EXPECT_EQ(out[30], 0.0f);
  }
  codes[31] = 0x7E;
  scale = 255;
  EXPECT_FALSE(decode_engram_row_fp8(codes.data(), &scale, 32, out));
}

TEST(EngramRow, Lloyd4) {
  // Scale byte E << 3 | M means (8 + M) / 16 * 2^(E - 16): 0x80 is 0.5, 0x8C is 1.5.
  const Block row = block_with({{0, 0xF7}, {16, 0x09}, {128, 0x80}, {129, 0x8C}, {130, 0xFF}, {32, 0x07}});
  Values out{};
  decode_engram_row_lloyd4(row.data(), out.data());
  EXPECT_EQ(out[0], 0.5f);
  EXPECT_EQ(out[1], -0.5f);
  EXPECT_EQ(out[32], round_to_bf16(-0.095f * 1.5f));
  EXPECT_EQ(out[64], 30720.0f);  // 15/16 * 2^15
  EXPECT_EQ(out[255], 0.0f);
}

}  // namespace
}  // namespace fathom
