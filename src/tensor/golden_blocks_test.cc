// Every encoding against stored blocks and their values (tests/data/blocks), to the bit.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "tensor/weight.h"

namespace fathom {
namespace {

std::vector<std::byte> read_bytes(const std::string& name) {
  std::ifstream file(std::string(FATHOM_SOURCE_DIR "/tests/data/blocks/") + name, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// The matrix must cover STEM.in exactly and decode to exactly the bits of STEM.f32.
void expect_golden(const std::string& stem, WeightMatrix weight, const std::vector<std::byte>& input) {
  SCOPED_TRACE(stem);
  weight.row_bytes = row_bytes_of(weight.type, weight.cols, weight.bits);
  ASSERT_EQ(weight_bytes(weight), static_cast<int64_t>(input.size()));
  const std::vector<std::byte> expected = read_bytes(stem + ".f32");
  ASSERT_EQ(expected.size(), static_cast<size_t>(weight.rows * weight.cols) * 4);
  std::vector<float> found(static_cast<size_t>(weight.rows * weight.cols));
  for (int64_t row = 0; row < weight.rows; ++row) decode_row(weight, row, found.data() + row * weight.cols);
  int mismatches = 0;
  for (size_t at = 0; at < found.size(); ++at) {
    uint32_t bits = 0;
    std::memcpy(&bits, expected.data() + 4 * at, 4);
    if (bits_of_float(found[at]) == bits) continue;
    if (++mismatches <= 4)
      ADD_FAILURE() << "value " << at << ": expected " << float_from_bits(bits) << ", found " << found[at];
  }
  EXPECT_EQ(mismatches, 0);
}

void expect_golden_blocks(const std::string& stem, DType type, int64_t rows, int64_t cols) {
  const std::vector<std::byte> input = read_bytes(stem + ".in");
  ASSERT_FALSE(input.empty()) << stem;
  expect_golden(stem, {.type = type, .rows = rows, .cols = cols, .data = input.data()}, input);
}

TEST(GoldenBlocks, GgufTypes) {
  const std::pair<const char*, DType> cases[] = {
      {"q8_0", DType::kQ8_0},       {"q2_k", DType::kQ2_K},     {"q3_k", DType::kQ3_K},
      {"q4_k", DType::kQ4_K},       {"q5_k", DType::kQ5_K},     {"q6_k", DType::kQ6_K},
      {"iq1_s", DType::kIQ1_S},     {"iq1_m", DType::kIQ1_M},   {"iq2_xxs", DType::kIQ2_XXS},
      {"iq2_xs", DType::kIQ2_XS},   {"iq2_s", DType::kIQ2_S},   {"iq3_xxs", DType::kIQ3_XXS},
      {"iq3_s", DType::kIQ3_S},     {"iq4_nl", DType::kIQ4_NL}, {"iq4_xs", DType::kIQ4_XS},
      {"mxfp4", DType::kMXFP4},
  };
  for (const auto& [stem, type] : cases) expect_golden_blocks(stem, type, 1, 1024);
}

TEST(GoldenBlocks, EngramRows) {
  expect_golden_blocks("engram_row264", DType::kEngramRow264, 3, 256);
  expect_golden_blocks("engram_row136", DType::kEngramRow136, 3, 256);
}

TEST(GoldenBlocks, AffineEveryWidthAndGroup) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      const std::string stem = "affine_b" + std::to_string(bits) + "_g" + std::to_string(group);
      const std::vector<std::byte> input = read_bytes(stem + ".in");
      const int64_t groups = 256 / group;
      WeightMatrix weight{.type = DType::kAffine, .rows = 2, .cols = 256, .data = input.data()};
      weight.scales = input.data() + 2 * 256 * bits / 8;
      weight.biases = weight.scales + 2 * groups * 2;
      weight.scale_row_bytes = weight.bias_row_bytes = groups * 2;
      weight.scale_type = DType::kBF16;
      weight.bits = static_cast<uint16_t>(bits);
      weight.group = static_cast<uint16_t>(group);
      expect_golden(stem, weight, input);
    }
  }
}

TEST(GoldenBlocks, SeparateScales) {
  struct Case {
    const char* stem;
    DType type;
    int64_t rows;
    int64_t cols;
  };
  for (const auto& [stem, type, rows, cols] : {Case{"fp8_tiles", DType::kFp8Tile32, 64, 96},
                                               Case{"mlx_mxfp8", DType::kFp8Row32, 2, 256},
                                               Case{"mlx_mxfp4", DType::kFp4Row32, 2, 256},
                                               Case{"fp4_rows", DType::kFp4Row32, 4, 96}}) {
    const std::vector<std::byte> input = read_bytes(std::string(stem) + ".in");
    WeightMatrix weight{.type = type, .rows = rows, .cols = cols, .data = input.data()};
    weight.scales = input.data() + rows * row_bytes_of(type, cols);
    weight.scale_row_bytes = cols / 32;
    expect_golden(stem, weight, input);
  }
}

// One matrix of the official checkpoint and its repack as GGUF blocks: other bytes, equal values. Only
// equal, because code 8 is -0 in the checkpoint and +0 in GGUF.
TEST(GoldenBlocks, Fp4RepackedAsMxfp4) {
  const std::vector<std::byte> input = read_bytes("fp4_as_mxfp4.in");
  const std::vector<std::byte> expected = read_bytes("fp4_rows.f32");
  ASSERT_EQ(read_bytes("fp4_as_mxfp4.f32"), expected);
  ASSERT_EQ(expected.size(), 4u * 96 * 4);
  WeightMatrix weight{.type = DType::kMXFP4, .rows = 4, .cols = 96, .data = input.data(), .row_bytes = 51};
  ASSERT_EQ(weight_bytes(weight), static_cast<int64_t>(input.size()));
  for (int64_t row = 0; row < 4; ++row) {
    float found[96];
    decode_row(weight, row, found);
    for (int64_t col = 0; col < 96; ++col) {
      float value = 0;
      std::memcpy(&value, expected.data() + 4 * (row * 96 + col), 4);
      EXPECT_EQ(found[col], value) << "row " << row << " column " << col;
    }
  }
}

}  // namespace
}  // namespace fathom
