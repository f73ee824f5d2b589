#include "tensor/dtype.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/check.h"

namespace fathom {
namespace {

struct Entry {
  DType type;
  DTypeInfo info;
};

// In the order of the enum.
constexpr Entry kEntries[] = {
    {DType::kF32, {"F32", 1, 4}},
    {DType::kF16, {"F16", 1, 2}},
    {DType::kBF16, {"BF16", 1, 2}},
    {DType::kF64, {"F64", 1, 8}},
    {DType::kI8, {"I8", 1, 1}},
    {DType::kU8, {"U8", 1, 1}},
    {DType::kI16, {"I16", 1, 2}},
    {DType::kU16, {"U16", 1, 2}},
    {DType::kI32, {"I32", 1, 4}},
    {DType::kU32, {"U32", 1, 4}},
    {DType::kI64, {"I64", 1, 8}},
    {DType::kU64, {"U64", 1, 8}},
    {DType::kBool, {"BOOL", 1, 1}},
    {DType::kF8E4M3, {"F8_E4M3", 1, 1}},
    {DType::kF8E8M0, {"F8_E8M0", 1, 1}},
    {DType::kQ8_0, {"Q8_0", 32, 34}},
    {DType::kQ2_K, {"Q2_K", 256, 84}},
    {DType::kQ3_K, {"Q3_K", 256, 110}},
    {DType::kQ4_K, {"Q4_K", 256, 144}},
    {DType::kQ5_K, {"Q5_K", 256, 176}},
    {DType::kQ6_K, {"Q6_K", 256, 210}},
    {DType::kIQ1_S, {"IQ1_S", 256, 50}},
    {DType::kIQ1_M, {"IQ1_M", 256, 56}},
    {DType::kIQ2_XXS, {"IQ2_XXS", 256, 66}},
    {DType::kIQ2_XS, {"IQ2_XS", 256, 74}},
    {DType::kIQ2_S, {"IQ2_S", 256, 82}},
    {DType::kIQ3_XXS, {"IQ3_XXS", 256, 98}},
    {DType::kIQ3_S, {"IQ3_S", 256, 110}},
    {DType::kIQ4_NL, {"IQ4_NL", 32, 18}},
    {DType::kIQ4_XS, {"IQ4_XS", 256, 136}},
    {DType::kMXFP4, {"MXFP4", 32, 17}},
    {DType::kFp8Tile32, {"fp8 tiles of 32x32", 0, 0}},
    {DType::kFp8Row32, {"mxfp8", 0, 0}},
    {DType::kFp4Row32, {"fp4", 0, 0}},
    {DType::kAffine, {"affine", 0, 0}},
    {DType::kEngramRow264, {"e4m3_e8m0_32_row264", 256, 264}},
    {DType::kEngramRow136, {"lloyd4_e5m3_32_r136", 256, 136}},
};

constexpr bool in_enum_order() {
  for (size_t at = 0; at < std::size(kEntries); ++at)
    if (static_cast<size_t>(kEntries[at].type) != at) return false;
  return std::size(kEntries) == static_cast<size_t>(DType::kEngramRow136) + 1;
}
static_assert(in_enum_order());

constexpr std::pair<uint32_t, DType> kGgufTypes[] = {
    {0, DType::kF32},      {1, DType::kF16},    {8, DType::kQ8_0},   {10, DType::kQ2_K},
    {11, DType::kQ3_K},    {12, DType::kQ4_K},  {13, DType::kQ5_K},  {14, DType::kQ6_K},
    {16, DType::kIQ2_XXS}, {17, DType::kIQ2_XS}, {18, DType::kIQ3_XXS}, {19, DType::kIQ1_S},
    {20, DType::kIQ4_NL},  {21, DType::kIQ3_S}, {22, DType::kIQ2_S}, {23, DType::kIQ4_XS},
    {24, DType::kI8},      {25, DType::kI16},   {26, DType::kI32},   {27, DType::kI64},
    {28, DType::kF64},     {29, DType::kIQ1_M}, {30, DType::kBF16},  {39, DType::kMXFP4},
};

// Types that GGUF files may name and this build does not read. Ids below 97 are ggml's, including those it
// has withdrawn; the others belong to ik_llama.cpp, from 202 on rows interleaved by 4 to 16.
constexpr std::pair<uint32_t, std::string_view> kRefusedGgufTypes[] = {
    {2, "Q4_0"},         {3, "Q4_1"},         {4, "Q4_2"},         {5, "Q4_3"},
    {6, "Q5_0"},         {7, "Q5_1"},         {9, "Q8_1"},         {15, "Q8_K"},
    {31, "Q4_0_4_4"},    {32, "Q4_0_4_8"},    {33, "Q4_0_8_8"},    {34, "TQ1_0"},
    {35, "TQ2_0"},       {36, "IQ4_NL_4_4"},  {37, "IQ4_NL_4_8"},  {38, "IQ4_NL_8_8"},
    {40, "NVFP4"},       {41, "Q1_0"},        {42, "Q2_0"},
    {97, "Q8_0_X4"},     {98, "Q8_1_X4"},     {99, "Q8_2_X4"},     {133, "Q6_0"},
    {134, "IQ1_BN"},     {135, "IQ2_BN"},     {136, "Q8_K64"},     {137, "IQ2_K"},
    {138, "IQ3_K"},      {139, "IQ4_K"},      {140, "IQ5_K"},      {141, "IQ6_K"},
    {144, "IQ4_KS"},     {145, "IQ2_KS"},     {146, "IQ4_KSS"},    {147, "Q8_K16"},
    {148, "Q8_K32"},     {149, "Q8_KR8"},     {150, "Q8_K128"},    {151, "Q8_KV"},
    {152, "IQ5_KS"},     {153, "IQ2_KT"},     {154, "IQ3_KT"},     {155, "IQ4_KT"},
    {156, "IQ3_KS"},     {157, "IQ2_KL"},     {158, "IQ1_KT"},     {202, "Q4_0_R8"},
    {206, "Q5_0_R4"},    {208, "Q8_0_R8"},    {210, "Q2_K_R4"},    {211, "Q3_K_R4"},
    {212, "Q4_K_R4"},    {213, "Q5_K_R4"},    {214, "Q6_K_R4"},    {216, "IQ2_XXS_R4"},
    {217, "IQ2_XS_R4"},  {218, "IQ3_XXS_R4"}, {219, "IQ1_S_R4"},   {220, "IQ4_NL_R4"},
    {221, "IQ3_S_R4"},   {222, "IQ2_S_R4"},   {223, "IQ4_XS_R8"},  {229, "IQ1_M_R4"},
    {230, "BF16_R16"},   {233, "Q6_0_R4"},    {335, "IQ2_BN_R4"},  {337, "IQ2_K_R4"},
    {338, "IQ3_K_R4"},   {339, "IQ4_K_R4"},   {340, "IQ5_K_R4"},
};

}  // namespace

const DTypeInfo& dtype_info(DType type) {
  const size_t at = static_cast<size_t>(type);
  FATHOM_CHECK(at < std::size(kEntries), "type {}", at);
  return kEntries[at].info;
}

std::optional<DType> dtype_from_gguf_id(uint32_t id) {
  for (const auto& [known, type] : kGgufTypes)
    if (known == id) return type;
  return std::nullopt;
}

std::string gguf_type_name(uint32_t id) {
  if (const auto type = dtype_from_gguf_id(id)) return std::string(dtype_name(*type));
  for (const auto& [known, name] : kRefusedGgufTypes)
    if (known == id) return std::string(name);
  return fmt::format("type {}", id);
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  // The plain types come first in the enum and are named as safetensors names them.
  for (const Entry& entry : kEntries) {
    if (entry.type > DType::kF8E8M0) break;
    if (entry.info.name == name) return entry.type;
  }
  return std::nullopt;
}

}  // namespace fathom
