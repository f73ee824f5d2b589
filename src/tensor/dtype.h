// Element encodings of weight files: the plain types of containers and the block types of GGUF and MLX.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fathom {

enum class DType : uint8_t {
  // Plain elements, as named by containers.
  kF32, kF16, kBF16, kF64, kI8, kU8, kI16, kU16, kI32, kU32, kI64, kU64, kBool,
  kF8E4M3,  // one byte, e4m3fn; scales live in another tensor
  kF8E8M0,  // one byte, a power of two
  // GGUF blocks; a row is a whole number of blocks.
  kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K,
  kIQ1_S, kIQ1_M, kIQ2_XXS, kIQ2_XS, kIQ2_S, kIQ3_XXS, kIQ3_S, kIQ4_NL, kIQ4_XS,
  kMXFP4,  // 17-byte blocks of 32: low nibbles are elements 0..15, high nibbles 16..31
  // Matrices whose scales stand apart (WeightMatrix::scales).
  kFp8Tile32,  // e4m3 bytes, one E8M0 for each 32x32 tile
  kFp8Row32,   // e4m3 bytes, one E8M0 for each 32 columns of a row (MLX mxfp8)
  kFp4Row32,   // two e2m1 codes a byte, even column low, one E8M0 for each 32 columns (official, MLX mxfp4)
  kAffine,     // MLX: `bits`-wide codes in one little-endian bit stream a row, w = scale*q + bias a group
  // Whole Engram rows.
  kEngramRow264,  // 256 e4m3 bytes, then 8 E8M0 bytes
  kEngramRow136,  // lloyd4_e5m3_32_r136: 128 bytes of 4-bit codes, then 8 e5m3 scale bytes
};

struct DTypeInfo {
  std::string_view name;  // as in the container or the GGUF type table
  int block_elements;     // 1 for plain types; 0 where scales stand apart and the byte count needs the matrix
  int block_bytes;
};
const DTypeInfo& dtype_info(DType type);
inline std::string_view dtype_name(DType type) { return dtype_info(type).name; }

/// Type of a GGUF tensor record; nothing for an id this build does not read.
std::optional<DType> dtype_from_gguf_id(uint32_t id);
/// The name of a GGUF type id, also for ids that are not read ("Q5_1"); "type N" if unknown.
std::string gguf_type_name(uint32_t id);
/// Type of a safetensors dtype string ("BF16", "F8_E4M3", ...).
std::optional<DType> dtype_from_safetensors(std::string_view name);

}  // namespace fathom
