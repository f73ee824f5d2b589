#include "cpu/testing.h"

namespace fathom::cpu_testing {
namespace {

// Two orders of summing n products of float32 differ by about 2^-24 * sqrt(n) of the norm of the terms; the
// results' norm is of that size for random signs.
constexpr Bound kExact = {.of_norm = 1e-5f};
constexpr Bound kRounded = {.of_norm = 1e-5f, .flipped_share = 0.01f};

// Every encoding of weights.
constexpr DType kWeightTypes[] = {
    DType::kF32,     DType::kF16,   DType::kBF16,   DType::kFp8Tile32, DType::kFp8Row32, DType::kFp4Row32,
    DType::kMXFP4,   DType::kQ8_0,  DType::kQ2_K,   DType::kQ3_K,      DType::kQ4_K,     DType::kQ5_K,
    DType::kQ6_K,    DType::kIQ1_S, DType::kIQ1_M,  DType::kIQ2_XXS,   DType::kIQ2_XS,   DType::kIQ2_S,
    DType::kIQ3_XXS, DType::kIQ3_S, DType::kIQ4_NL, DType::kIQ4_XS,    DType::kAffine};

// bfloat16 numbers that kernels with fixed-point activations take exactly as well: multiples of 2^-10 below 8.
std::vector<float> even_bf16s(uint32_t seed, int64_t count) {
  std::vector<float> values = Random(seed).bf16s(count);
  for (float& value : values) value = std::nearbyint(value * 1024.0f) / 1024.0f;
  return values;
}

struct Case {
  bool rounded = false;
  bool bf16_inputs = false;
  int bits = 4;
};

void check_weight(const TestWeight& weight, int64_t rows, const Case& how) {
  const int64_t outputs = weight.matrix.rows, cols = weight.matrix.cols;
  const std::vector<float> in =
      how.bf16_inputs ? even_bf16s(5, rows * cols) : Random(5).floats(rows * cols);
  check_operation(
      "linear", rows, outputs,
      [&](Backend& backend, int64_t first, int64_t count, float* out) {
        backend.linear({.in = in.data() + first * cols,
                        .weight = &weight.matrix,
                        .rows = count,
                        .out = out + first * outputs,
                        .round_to_bf16 = how.rounded,
                        .inputs_are_bf16 = how.bf16_inputs});
      },
      how.rounded ? kRounded : kExact);
}

void check_linear(DType type, int64_t outputs, int64_t cols, int64_t rows, const Case& how) {
  SCOPED_TRACE(testing::Message() << dtype_name(type) << " [" << outputs << ", " << cols << "] x " << rows
                                  << (how.bf16_inputs ? " bfloat16" : "") << ", " << how.bits << " bits");
  check_weight(make_weight(type, outputs, cols, static_cast<uint32_t>(outputs + cols), how.bits), rows, how);
}

TEST(CpuLinear, EveryEncodingIsItsDecoderTimesTheRows) {
  for (DType type : kWeightTypes)
    for (bool bf16_inputs : {false, true}) check_linear(type, 37, 512, 19, {.bf16_inputs = bf16_inputs});
}

TEST(CpuLinear, AffineCodesOfEveryWidth) {
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (bool bf16_inputs : {false, true})
      check_linear(DType::kAffine, 9, 192, 7, {.bf16_inputs = bf16_inputs, .bits = bits});
}

TEST(CpuLinear, WidthsOfOneAndOfOddManyBlocks) {
  for (DType type : kWeightTypes)
    for (int blocks : {1, 3}) {
      const int64_t block = std::max(32, dtype_info(type).block_elements);
      check_linear(type, 21, blocks * (type == DType::kAffine ? 64 : block), 8, {.bf16_inputs = true});
    }
}

// Rows whose scales leave bfloat16 stand beside rows whose do not.
TEST(CpuLinear, ScalesAtTheEndsOfTheirRange) {
  for (DType type : {DType::kFp8Tile32, DType::kFp8Row32, DType::kFp4Row32, DType::kMXFP4}) {
    SCOPED_TRACE(dtype_name(type));
    TestWeight weight = make_weight(type, 70, 64, 8);
    std::vector<std::byte>& bytes = type == DType::kMXFP4 ? weight.data : weight.scales;
    const size_t step = type == DType::kMXFP4 ? 17 : 1;
    constexpr int kScales[] = {67, 187, 127, 66, 188, 60, 120, 119, 121, 200, 130, 131};
    for (size_t at = 1, number = 0; at < bytes.size(); at += step, ++number)
      bytes[at] = std::byte{static_cast<uint8_t>(kScales[number / 4 % std::size(kScales)])};
    check_weight(weight, 5, {.bf16_inputs = true});
  }
}

// What is far smaller than the largest activation of its block may be rounded, to 2^-15 of that at most.
TEST(CpuLinear, SmallActivationsBesideLargeOnes) {
  constexpr int64_t kCols = 512, kOutputs = 24, kRows = 5;
  std::vector<float> in = Random(15).bf16s(kRows * kCols);
  for (size_t k = 0; k < in.size(); ++k) in[k] = std::ldexp(in[k], -static_cast<int>(k * 7 % 20));
  in[300] = 7.96875f;  // 255 * 2^-5: all eight bits set
  for (DType type : kWeightTypes) {
    const TestWeight weight = make_weight(type, kOutputs, kCols, 16);
    std::vector<float> row(kCols);
    for (CpuIsa isa : available_cpu_isas()) {
      SCOPED_TRACE(testing::Message() << dtype_name(type) << ' ' << cpu_isa_name(isa));
      std::vector<float> out(kRows * kOutputs);
      backend_of(isa, 1)->linear({.in = in.data(),
                                  .weight = &weight.matrix,
                                  .rows = kRows,
                                  .out = out.data(),
                                  .round_to_bf16 = false,
                                  .inputs_are_bf16 = true});
      for (int64_t output = 0; output < kOutputs; ++output) {
        decode_row(weight.matrix, output, row.data());
        for (int64_t m = 0; m < kRows; ++m) {
          double expected = 0, allowed = 0;
          float largest = 0;
          for (int64_t k = 0; k < kCols; ++k) {
            const float x = in[static_cast<size_t>(m * kCols + k)], w = row[static_cast<size_t>(k)];
            expected += double{x} * w;
            allowed += 1e-6 * std::fabs(double{x} * w);
            largest = std::max(largest, std::fabs(x));
          }
          for (const float w : row) allowed += std::ldexp(largest, -15) * std::fabs(double{w});
          ASSERT_NEAR(out[static_cast<size_t>(m * kOutputs + output)], expected, allowed)
              << "row " << m << ", output " << output;
        }
      }
    }
  }
}

// Kernels that sum in 32-bit integers: bytes that make the largest codes and scales of either sign, activations
// with the signs of the weights.
TEST(CpuLinear, SumsOfTheLargestCodes) {
  constexpr int64_t kCols = 512, kRows = 3;
  struct Blocks {
    DType type;
    size_t bytes, second_scale;  // the first float16 of a block ends at 1, or with it
  };
  constexpr Blocks kBlocks[] = {
      {DType::kQ8_0, 34, 1},     {DType::kQ2_K, 84, 81},    {DType::kQ3_K, 110, 109}, {DType::kQ4_K, 144, 1},
      {DType::kQ5_K, 176, 1},    {DType::kQ6_K, 210, 209},  {DType::kIQ1_S, 50, 1},   {DType::kIQ2_XXS, 66, 1},
      {DType::kIQ2_XS, 74, 1},   {DType::kIQ2_S, 82, 1},    {DType::kIQ3_XXS, 98, 1}, {DType::kIQ3_S, 110, 1},
      {DType::kIQ4_XS, 136, 1},  {DType::kIQ4_NL, 18, 1}};
  for (const Blocks& blocks : kBlocks)
    for (int byte : {0x00, 0x7F, 0x80, 0xFF}) {
      TestWeight weight = make_weight(blocks.type, 1, kCols, 17);
      for (size_t at = 1; at < weight.data.size(); ++at) {
        const size_t place = (at - 1) % blocks.bytes;
        const bool is_scale = place == blocks.second_scale || (place == 3 && blocks.bytes >= 144) ||
                              (place == 83 && blocks.type == DType::kQ2_K);
        weight.data[at] = std::byte{static_cast<uint8_t>(is_scale ? 0x2C : byte)};
      }
      std::vector<float> row(kCols), in;
      decode_row(weight.matrix, 0, row.data());
      double expected = 0;
      for (float w : row) expected += std::fabs(double{w}) * 1.9921875;
      for (int64_t m = 0; m < kRows; ++m)
        for (float w : row) in.push_back(std::copysign(1.9921875f, w));
      for (CpuIsa isa : available_cpu_isas())
        for (int64_t rows : {int64_t{1}, kRows}) {
          SCOPED_TRACE(testing::Message() << dtype_name(blocks.type) << ' ' << byte << ' ' << cpu_isa_name(isa));
          std::vector<float> out(kRows);
          backend_of(isa, 1)->linear({.in = in.data(),
                                      .weight = &weight.matrix,
                                      .rows = rows,
                                      .out = out.data(),
                                      .round_to_bf16 = false,
                                      .inputs_are_bf16 = true});
          ASSERT_NEAR(out[0], expected, 1e-5 * expected);
        }
    }
}

TEST(CpuLinear, ResultsNearTheEndsOfFloat32) {
  for (DType type : {DType::kFp8Tile32, DType::kFp4Row32, DType::kMXFP4})
    for (int scale : {0, 1, 12, 240, 244}) {
      SCOPED_TRACE(testing::Message() << dtype_name(type) << " scale " << scale);
      TestWeight weight = make_weight(type, 33, 64, 8);
      std::vector<std::byte>& bytes = type == DType::kMXFP4 ? weight.data : weight.scales;
      for (size_t at = 1; at < bytes.size(); at += type == DType::kMXFP4 ? 17 : 1)
        bytes[at] = std::byte{static_cast<uint8_t>(scale)};
      check_weight(weight, 5, {.bf16_inputs = true});
    }
}

TEST(CpuLinear, ColumnsNeedNotFillABlock) {
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kFp8Tile32})
    for (int64_t cols : {1, 7, 31, 33, 40, 100})
      for (bool bf16_inputs : {false, true}) check_linear(type, 21, cols, 9, {.bf16_inputs = bf16_inputs});
}

TEST(CpuLinear, RowCountsAroundTheTiles) {
  for (int64_t outputs : {1, 3, 4, 5, 16, 17})
    for (int64_t rows : {1, 2, 6, 7, 13})
      for (bool bf16_inputs : {false, true})
        check_linear(DType::kFp8Tile32, outputs, 64, rows, {.bf16_inputs = bf16_inputs});
}

TEST(CpuLinear, LargeEnoughForBlocksOfActivationRows) {
  check_linear(DType::kBF16, 40, 2048, 130, {.bf16_inputs = true});
  check_linear(DType::kQ4_K, 70, 1280, 70, {.bf16_inputs = true});
}

TEST(CpuLinear, ResultsRoundToBfloat16) { check_linear(DType::kFp4Row32, 64, 256, 11, {.rounded = true}); }

TEST(CpuLinear, GroupsReadTheirOwnColumns) {
  constexpr int64_t kRows = 7, kCols = 96, kOutputs = 60;
  constexpr int kGroups = 3;
  const TestWeight weight = make_weight(DType::kFp8Tile32, kOutputs, kCols, 3);
  const std::vector<float> in = Random(6).floats(kRows * kGroups * kCols);
  check_operation(
      "grouped", kRows, kOutputs,
      [&](Backend& backend, int64_t first, int64_t count, float* out) {
        backend.grouped_linear({.in = in.data() + first * kGroups * kCols,
                                .weight = &weight.matrix,
                                .rows = count,
                                .groups = kGroups,
                                .out = out + first * kOutputs,
                                .round_to_bf16 = false});
      },
      kExact);
}

// With rows of the identity a product is the decoded weight itself, so this compares every value of the fused
// and of the panel decoders with the definition, exactly.
TEST(CpuLinear, DecodedWeightsAreExact) {
  constexpr int64_t kCols = 256, kOutputs = 33;
  std::vector<float> identity(kCols * kCols, 0.0f);
  for (int64_t k = 0; k < kCols; ++k) identity[static_cast<size_t>(k * kCols + k)] = 1.0f;
  for (DType type : kWeightTypes) {
    TestWeight weight = make_weight(type, kOutputs, kCols, 9);
    // All scales that leave float32 finite, the subnormal ones and those whose first factor would overflow.
    for (size_t at = 1; at < weight.scales.size(); ++at)
      weight.scales[at] = std::byte{static_cast<uint8_t>(at * 41 % 246)};
    std::vector<float> row(kCols);
    for (CpuIsa isa : available_cpu_isas()) {
      SCOPED_TRACE(testing::Message() << dtype_name(type) << ' ' << cpu_isa_name(isa));
      const std::unique_ptr<Backend> backend = backend_of(isa, 1);
      for (int64_t group : {int64_t{1}, kCols}) {
        std::vector<float> out(kCols * kOutputs);
        for (int64_t k = 0; k < kCols; k += group)
          backend->linear({.in = identity.data() + k * kCols,
                           .weight = &weight.matrix,
                           .rows = group,
                           .out = out.data() + k * kOutputs,
                           .round_to_bf16 = false});
        for (int64_t output = 0; output < kOutputs; ++output) {
          decode_row(weight.matrix, output, row.data());
          for (int64_t k = 0; k < kCols; ++k)
            ASSERT_EQ(out[static_cast<size_t>(k * kOutputs + output)], row[static_cast<size_t>(k)])
                << "row " << output << ", column " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fathom::cpu_testing
