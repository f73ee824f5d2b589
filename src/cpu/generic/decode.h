// Decoding of weights and cache rows, 32 columns at a time. The values are exact, so decoding into registers
// and decoding into a panel give the same products. Included after a vec.h.
#pragma once

#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

static const int kBlock = 32;
static const int kBlockVectors = kBlock / kLanes;

FATHOM_INLINE float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
FATHOM_INLINE float e8m0(uint8_t code) {
  const uint32_t bits = code == 0 ? 0x00400000u : code == 255 ? 0x7FC00000u : (uint32_t)code << 23;
  return float_of_bits(bits);
}
FATHOM_INLINE float e4m3(uint8_t code) {
  const float magnitude = float_of_bits((uint32_t)(code & 0x7F) << 20) * 0x1p120f;
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// Bytes of a block of 32 columns in the data of a row.
FATHOM_INLINE int block_bytes(enum Encoding encoding) {
  switch (encoding) {
    case kEncodingF32: return 128;
    case kEncodingF16: return 64;
    case kEncodingBf16: return 64;
    case kEncodingFp8: return 32;
    case kEncodingFp4: return 16;
    case kEncodingMxfp4: return 17;
    case kEncodingQ8_0: return 34;
  }
  return 0;
}

// e4m3 bits moved into a float32 are the value times 2^-120. One factor undoes that and applies the scale,
// unless their product is beyond float32.
FATHOM_INLINE void fp8_block(const uint8_t* codes, uint8_t scale_code, F* out) {
  const int is_small = scale_code < 135;
  const F factor = f_set(is_small ? float_of_bits((uint32_t)(scale_code + 120) << 23) : 0x1p120f);
  for (int v = 0; v < kBlockVectors; ++v) {
    const I bits = i_and(i_left(i_widen_i8(codes + v * kLanes), 20), i_set((int32_t)0x87F00000u));
    out[v] = f_mul(f_bits(bits), factor);
  }
  if (__builtin_expect(!is_small, 0))
    for (int v = 0; v < kBlockVectors; ++v) out[v] = f_mul(out[v], f_set(e8m0(scale_code)));
}

FATHOM_INLINE void q8_0_block(const uint8_t* block, F* out) {
  uint16_t half;
  memcpy(&half, block, sizeof half);
  const F scale = f_set(half_to_float(half));
  for (int v = 0; v < kBlockVectors; ++v) out[v] = f_mul(f_from_i(i_widen_i8(block + 2 + v * kLanes)), scale);
}

// One block, given its bytes and its scale's code (for the encodings whose scales stand apart).
FATHOM_INLINE void decode_block(enum Encoding encoding, const uint8_t* p, const uint8_t* scale, F* out) {
  switch (encoding) {
    case kEncodingF32:
      for (int v = 0; v < kBlockVectors; ++v) out[v] = f_load((const float*)(p + 4 * kLanes * v));
      break;
    case kEncodingF16:
      for (int v = 0; v < kBlockVectors; ++v) out[v] = f_widen_f16(p + 2 * kLanes * v);
      break;
    case kEncodingBf16:
      for (int v = 0; v < kBlockVectors; ++v) out[v] = f_bits(i_left(i_widen_u16(p + 2 * kLanes * v), 16));
      break;
    case kEncodingFp8: fp8_block(p, *scale, out); break;
    case kEncodingFp4: fp4_pairs32(p, fp4_table(e8m0(*scale)), out); break;
    case kEncodingMxfp4: fp4_halves32(p + 1, fp4_table(e8m0(*p)), out); break;
    case kEncodingQ8_0: q8_0_block(p, out); break;
  }
}

FATHOM_INLINE const uint8_t* row_data(const struct EncodedMatrix* m, int64_t row) {
  return m->data + row * m->row_bytes;
}
FATHOM_INLINE const uint8_t* row_scales(const struct EncodedMatrix* m, int64_t row) {
  return m->scales + (row >> m->scale_row_shift) * m->scale_row_bytes;
}

// The last, partial block of a row: only types with one code a column have one. Zero bytes decode to zero.
FATHOM_INLINE void copy_tail(enum Encoding encoding, const uint8_t* p, int64_t columns, uint8_t* block) {
  memset(block, 0, 128);
  memcpy(block, p, (size_t)(columns * (block_bytes(encoding) / kBlock)));
}

FATHOM_INLINE void decode_rows(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                               int64_t count, float* panel, int64_t stride) {
  const int bytes = block_bytes(encoding);
  const int64_t blocks = m->cols / kBlock;
  const int64_t tail = m->cols % kBlock;
  for (int64_t r = row; r < row + count; ++r, panel += stride) {
    const uint8_t* data = row_data(m, r);
    const uint8_t* scales = row_scales(m, r);
    F columns[kBlockVectors];
    float* out = panel;
    for (int64_t b = 0; b < blocks; ++b, out += kBlock) {
      decode_block(encoding, data + b * bytes, scales + b, columns);
      for (int v = 0; v < kBlockVectors; ++v) f_store(out + v * kLanes, columns[v]);
    }
    if (tail != 0) {
      uint8_t block[128];
      copy_tail(encoding, data + blocks * bytes, tail, block);
      decode_block(encoding, block, scales + blocks, columns);
      for (int v = 0; v < kBlockVectors; ++v) f_store(out + v * kLanes, columns[v]);
      out += kBlock;
    }
    memset(out, 0, (size_t)(panel + stride - out) * sizeof(float));
  }
}

static void decode(const struct EncodedMatrix* m, int64_t row, int64_t count, float* panel, int64_t stride) {
  switch (m->encoding) {
    case kEncodingF32: return decode_rows(kEncodingF32, m, row, count, panel, stride);
    case kEncodingF16: return decode_rows(kEncodingF16, m, row, count, panel, stride);
    case kEncodingBf16: return decode_rows(kEncodingBf16, m, row, count, panel, stride);
    case kEncodingFp8: return decode_rows(kEncodingFp8, m, row, count, panel, stride);
    case kEncodingFp4: return decode_rows(kEncodingFp4, m, row, count, panel, stride);
    case kEncodingMxfp4: return decode_rows(kEncodingMxfp4, m, row, count, panel, stride);
    case kEncodingQ8_0: return decode_rows(kEncodingQ8_0, m, row, count, panel, stride);
  }
}

static void decode_q8(const uint8_t* packed, float* out, int64_t width) {
  const uint8_t* scales = packed + width;
  F columns[kBlockVectors];
  for (int64_t k = 0; k < width; k += kBlock) {
    fp8_block(packed + k, scales[k / kBlock], columns);
    for (int v = 0; v < kBlockVectors; ++v) f_store(out + k + v * kLanes, columns[v]);
  }
}

static void decode_q4k(const uint8_t* packed, float* out, int64_t width) {
  const uint8_t* scales = packed + width / 2;
  F columns[kBlockVectors];
  for (int64_t k = 0; k < width; k += kBlock) {
    fp4_pairs32(packed + k / 2, fp4_table(e8m0(scales[k / kBlock])), columns);
    for (int v = 0; v < kBlockVectors; ++v) f_store(out + k + v * kLanes, columns[v]);
  }
}

static void decode_q4c(const uint8_t* packed, float* out, int64_t width) {
  const uint8_t* scales = packed + width / 2;
  for (int64_t k = 0; k < width; k += 16)
    fp4_pairs16(packed + k / 2, fp4_table(e4m3(scales[k / 16])), out + k);
}

}  // namespace
}  // namespace fathom::cpu
