#include "tensor/weight_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace fathom {
namespace {

// Random bytes in every encoding: what the check says must be what decoding every value says.
TEST(WeightCheck, AgreesWithDecoding) {
  constexpr DType kTypes[] = {
      DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K, DType::kQ4_K,
      DType::kQ5_K, DType::kQ6_K, DType::kIQ1_S, DType::kIQ1_M, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S,
      DType::kIQ3_XXS, DType::kIQ3_S, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4, DType::kFp8Tile32,
      DType::kFp8Row32, DType::kFp4Row32, DType::kAffine};
  std::mt19937 random(5);
  int usable = 0, unusable = 0;
  for (const DType type : kTypes) {
    for (int round = 0; round < 40; ++round) {
      WeightMatrix w{.type = type, .rows = 3, .cols = 256};
      if (type == DType::kAffine) w.bits = 4, w.group = 64, w.scale_type = DType::kF16;
      w.row_bytes = row_bytes_of(type, w.cols, w.bits);
      std::vector<std::byte> data(static_cast<size_t>(w.row_bytes * w.rows)), scales(96), biases(96);
      for (auto* bytes : {&data, &scales, &biases})
        for (std::byte& byte : *bytes) byte = static_cast<std::byte>(random());
      // Random e4m3 codes would nearly always hold a NaN somewhere; let half of the rounds be clean.
      if (round % 2 == 0)
        for (auto* bytes : {&data, &scales, &biases})
          for (std::byte& byte : *bytes) byte &= std::byte{0x3B};
      // A finite scale near the top of float32 overflows only when multiplied: not this check's business.
      for (auto* bytes : {&data, &scales})
        for (std::byte& byte : *bytes)
          if (byte >= std::byte{0xF0} && byte < std::byte{0xFF}) byte = std::byte{0x70};
      w.data = data.data(), w.scales = scales.data(), w.biases = biases.data();
      w.scale_row_bytes = w.bias_row_bytes = 8;
      std::vector<float> values(256);
      std::optional<int64_t> expected;
      for (int64_t row = 0; row < w.rows && !expected; ++row) {
        decode_row(w, row, values.data());
        for (const float value : values)
          if (!std::isfinite(value)) expected = row;
      }
      EXPECT_EQ(first_unusable_row(w), expected) << dtype_name(type) << " round " << round;
      (expected ? unusable : usable)++;
    }
  }
  EXPECT_GT(usable, 200);
  EXPECT_GT(unusable, 100);
}

}  // namespace
}  // namespace fathom
