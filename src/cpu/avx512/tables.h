// Constants of units.h.
#pragma once

#include <stdint.h>

#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

// bfloat16 bits of a value that bfloat16 holds exactly.
constexpr uint16_t bf16_bits(float value) { return (uint16_t)(__builtin_bit_cast(uint32_t, value) >> 16); }

// Integers by word index, repeated so that bits above the index do not matter.
template <int kSize>
struct Words {
  alignas(64) uint16_t word[kSize];
};
constexpr Words<32> iq4_values() {
  constexpr int kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  Words<32> table{};
  for (int i = 0; i < 32; ++i) table.word[i] = (uint16_t)kLevels[i % 16];
  return table;
}
constexpr Words<32> kIq4Values = iq4_values();
// Two bits of magnitude, then the sign.
constexpr Words<32> iq2_values() {
  constexpr int kLevels[8] = {8, 25, 43, 0, -8, -25, -43, 0};
  Words<32> table{};
  for (int i = 0; i < 32; ++i) table.word[i] = (uint16_t)kLevels[i % 8];
  return table;
}
constexpr Words<32> kIq2Values = iq2_values();
constexpr Words<32> word_numbers() {
  Words<32> table{};
  for (int i = 0; i < 32; ++i) table.word[i] = (uint16_t)i;
  return table;
}
constexpr Words<32> kWordNumbers = word_numbers();
static const uint16_t* const kWordNumber = kWordNumbers.word;

// Of 32 columns: which of the words of a block, one for 16 columns each, is theirs.
struct GroupWords {
  alignas(64) uint16_t word[8][32];
};
constexpr GroupWords group_words() {
  GroupWords table{};
  for (int group = 0; group < 8; ++group)
    for (int i = 0; i < 32; ++i) table.word[group][i] = (uint16_t)(2 * group + i / 16);
  return table;
}
constexpr GroupWords kGroupWords = group_words();

// Scales that the direct kinds can apply: all weights stay normal numbers in bfloat16, and so do the table's.
constexpr int kLowestScale = 67, kHighestScale = 187;

constexpr int kFp8Excess = 60;  // kHighestScale - 127
struct Fp8Tables {
  alignas(64) uint8_t high[128], low[128];
};
constexpr Fp8Tables fp8_tables() {
  Fp8Tables table{};
  for (int code = 0; code < 128; ++code) {
    const int exponent = code >> 3, mantissa = code & 7;
    float value = exponent == 0 ? (float)mantissa / 512.0f : (float)(8 + mantissa) / 512.0f;
    for (int e = 1; e < exponent; ++e) value *= 2;
    const uint32_t bits = value == 0 ? 0 : bf16_bits(value) + (kFp8Excess << 7);
    table.high[code] = (uint8_t)(bits >> 8);
    table.low[code] = (uint8_t)bits;
  }
  return table;
}
constexpr Fp8Tables kFp8Tables = fp8_tables();
static const uint8_t* const kFp8High = kFp8Tables.high;
static const uint8_t* const kFp8Low = kFp8Tables.low;

// Byte 0 of a repeated pair to the words of the first 32 columns, byte 1 to the others.
struct Bytes64 {
  alignas(64) uint8_t byte[64];
};
constexpr Bytes64 fp8_scale_shuffle() {
  Bytes64 table{};
  for (int i = 0; i < 64; ++i) table.byte[i] = (uint8_t)(i % 2 == 1 ? 0x80 : i / 32);
  return table;
}
constexpr Bytes64 kFp8ScaleShuffles = fp8_scale_shuffle();
static const uint8_t* const kFp8ScaleShuffle = kFp8ScaleShuffles.byte;

// Each lane of 128 bits has its own nibble of the words.
constexpr Words<32> fp4_shift() {
  Words<32> table{};
  for (int i = 0; i < 32; ++i) table.word[i] = (uint16_t)(4 * (i / 8));
  return table;
}
constexpr Words<32> kFp4Shifts = fp4_shift();
static const uint16_t* const kFp4Shift = kFp4Shifts.word;

// The sixteen e2m1 values, twice, times each scale; zeros for scales that are not applied here.
struct Fp4Tables {
  alignas(64) uint16_t word[256][32];
};
constexpr Fp4Tables fp4_tables() {
  constexpr float kValues[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  Fp4Tables tables{};
  for (int scale = kLowestScale; scale <= kHighestScale; ++scale)
    for (int i = 0; i < 32; ++i) {
      const float value = kValues[i % 8];
      const int bits = value == 0 ? 0 : bf16_bits(value) + (scale - 127) * 128;
      tables.word[scale][i] = (uint16_t)(bits | (i / 8 % 2) << 15);
    }
  return tables;
}
constexpr Fp4Tables kFp4Tables = fp4_tables();

}  // namespace
}  // namespace fathom::cpu
