#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include "tensor/weight.h"

namespace fathom {
namespace {

TEST(DType, GgufIds) {
  EXPECT_EQ(dtype_from_gguf_id(0), DType::kF32);
  EXPECT_EQ(dtype_from_gguf_id(8), DType::kQ8_0);
  EXPECT_EQ(dtype_from_gguf_id(10), DType::kQ2_K);
  EXPECT_EQ(dtype_from_gguf_id(16), DType::kIQ2_XXS);
  EXPECT_EQ(dtype_from_gguf_id(18), DType::kIQ3_XXS);
  EXPECT_EQ(dtype_from_gguf_id(21), DType::kIQ3_S);
  EXPECT_EQ(dtype_from_gguf_id(22), DType::kIQ2_S);
  EXPECT_EQ(dtype_from_gguf_id(24), DType::kI8);
  EXPECT_EQ(dtype_from_gguf_id(29), DType::kIQ1_M);
  EXPECT_EQ(dtype_from_gguf_id(30), DType::kBF16);
  EXPECT_EQ(dtype_from_gguf_id(39), DType::kMXFP4);
  for (const uint32_t refused : {2u, 7u, 15u, 34u, 40u, 43u, 137u, 1000u, 0xFFFFFFFFu})
    EXPECT_FALSE(dtype_from_gguf_id(refused).has_value()) << refused;
}

TEST(DType, GgufNamesAlsoOfRefusedTypes) {
  EXPECT_EQ(gguf_type_name(23), "IQ4_XS");
  EXPECT_EQ(gguf_type_name(7), "Q5_1");
  EXPECT_EQ(gguf_type_name(35), "TQ2_0");
  EXPECT_EQ(gguf_type_name(139), "IQ4_K");
  EXPECT_EQ(gguf_type_name(212), "Q4_K_R4");
  EXPECT_EQ(gguf_type_name(43), "type 43");
}

TEST(DType, Safetensors) {
  EXPECT_EQ(dtype_from_safetensors("BF16"), DType::kBF16);
  EXPECT_EQ(dtype_from_safetensors("F8_E4M3"), DType::kF8E4M3);
  EXPECT_EQ(dtype_from_safetensors("F8_E8M0"), DType::kF8E8M0);
  EXPECT_EQ(dtype_from_safetensors("BOOL"), DType::kBool);
  for (const char* name : {"F32", "F16", "F64", "I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64"}) {
    ASSERT_TRUE(dtype_from_safetensors(name).has_value()) << name;
    EXPECT_EQ(dtype_name(*dtype_from_safetensors(name)), name);
  }
  for (const char* name : {"", "f32", "F8_E5M2", "Q8_0", "affine"})
    EXPECT_FALSE(dtype_from_safetensors(name).has_value()) << name;
}

TEST(RowBytes, RealShapes) {
  EXPECT_EQ(row_bytes_of(DType::kF32, 3), 12);
  EXPECT_EQ(row_bytes_of(DType::kQ8_0, 5120), 5440);
  EXPECT_EQ(row_bytes_of(DType::kIQ2_XXS, 5120), 1320);
  EXPECT_EQ(row_bytes_of(DType::kQ2_K, 2304), 756);
  EXPECT_EQ(row_bytes_of(DType::kMXFP4, 5120), 2720);
  EXPECT_EQ(row_bytes_of(DType::kFp8Tile32, 100), 100);
  EXPECT_EQ(row_bytes_of(DType::kFp4Row32, 5120), 2560);
  EXPECT_EQ(row_bytes_of(DType::kAffine, 5120, 3), 1920);
  EXPECT_EQ(row_bytes_of(DType::kEngramRow264, 256), 264);
  EXPECT_EQ(row_bytes_of(DType::kEngramRow136, 256), 136);
}

TEST(RowBytes, ZeroWhereARowIsNotWholeBlocks) {
  EXPECT_EQ(row_bytes_of(DType::kQ8_0, 33), 0);
  EXPECT_EQ(row_bytes_of(DType::kQ2_K, 128), 0);
  EXPECT_EQ(row_bytes_of(DType::kFp4Row32, 48), 0);
  EXPECT_EQ(row_bytes_of(DType::kEngramRow264, 512), 0);
  EXPECT_EQ(row_bytes_of(DType::kAffine, 256, 7), 0);
  EXPECT_EQ(row_bytes_of(DType::kAffine, 256, 0), 0);
  EXPECT_EQ(row_bytes_of(DType::kF32, 0), 0);
}

TEST(WeightBytes, CountsScalesThatStandApart) {
  EXPECT_EQ(weight_bytes({.type = DType::kIQ2_XXS, .rows = 2304, .cols = 5120}), 3041280);
  EXPECT_EQ(weight_bytes({.type = DType::kFp4Row32, .rows = 2304, .cols = 5120}), 6266880);
  EXPECT_EQ(weight_bytes({.type = DType::kFp8Tile32, .rows = 33, .cols = 65}), 33 * 65 + 2 * 3);
  EXPECT_EQ(weight_bytes({.type = DType::kFp8Row32, .rows = 2, .cols = 64}), 2 * (64 + 2));
  WeightMatrix affine{.type = DType::kAffine, .rows = 2304, .cols = 5120};
  affine.bits = 2, affine.group = 64, affine.scale_type = DType::kBF16;
  EXPECT_EQ(weight_bytes(affine), 3686400);
}

TEST(WeightType, NumbersThatAreNotWeights) {
  for (const DType type : {DType::kI8, DType::kU8, DType::kU64, DType::kBool, DType::kF8E4M3, DType::kF8E8M0})
    EXPECT_FALSE(is_weight_type(type)) << dtype_name(type);
  for (const DType type : {DType::kF32, DType::kF64, DType::kQ6_K, DType::kAffine, DType::kEngramRow136})
    EXPECT_TRUE(is_weight_type(type)) << dtype_name(type);
}

TEST(WeightTypeDeathTest, DecodingIntegersIsAMistake) {
  const std::byte data[4] = {};
  const WeightMatrix weight{.type = DType::kI8, .rows = 1, .cols = 4, .data = data, .row_bytes = 4};
  float out[4];
  EXPECT_DEATH(decode_row(weight, 0, out), "I8 is not a weight type");
}

}  // namespace
}  // namespace fathom
