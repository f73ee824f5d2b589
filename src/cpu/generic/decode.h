// Decoding of weights and cache rows, 32 columns at a time. The values are exact, so decoding into registers
// and decoding into a panel give the same products. Included after a vec.h.
#pragma once

#include "cpu/generic/blocks.h"
#include "cpu/generic/scales.h"
#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

// Bytes of a block of 32 columns in the data of a row; the K-quants have blocks of 256 instead.
FATHOM_INLINE int block_bytes(enum Encoding encoding) {
  switch (encoding) {
    case kEncodingF32: return 128;
    case kEncodingF16: return 64;
    case kEncodingBf16: return 64;
    case kEncodingFp8: return 32;
    case kEncodingFp4: return 16;
    case kEncodingMxfp4: return 17;
    case kEncodingQ8_0: return 34;
    default: return 0;
  }
}

// Block `b` of 32 columns of a row.
FATHOM_INLINE void decode_block(enum Encoding encoding, const uint8_t* row, const uint8_t* scales, int64_t b,
                                F* out) {
  const uint8_t* p = row + b * block_bytes(encoding);
  switch (encoding) {
    case kEncodingF32:
#pragma GCC unroll 8
      for (int v = 0; v < kBlockVectors; ++v) memcpy(&out[v], p + 4 * kLanes * v, sizeof out[v]);
      break;
    case kEncodingF16:
#pragma GCC unroll 8
      for (int v = 0; v < kBlockVectors; ++v) out[v] = f_widen_f16(p + 2 * kLanes * v);
      break;
    case kEncodingBf16: bf16_block(p, out); break;
    case kEncodingFp8: fp8_block(p, scales + b, out); break;
    case kEncodingFp4: fp4_pairs32(p, fp4_table(e8m0(scales[b])), out); break;
    case kEncodingMxfp4: fp4_halves32(p + 1, fp4_table(e8m0(*p)), out); break;
    case kEncodingQ8_0: q8_0_block(p, out); break;
    case kEncodingQ2K: q2_k_block(row + b / 8 * 84, (int)(b % 8), out); break;
    case kEncodingQ4K: q4_k_block(row + b / 8 * 144, (int)(b % 8), out); break;
    default: other_block(encoding, row, b, out); break;
  }
}

static int is_generic(enum Encoding encoding) { return encoding <= kEncodingQ4K; }

FATHOM_INLINE const uint8_t* row_data(const struct EncodedMatrix* m, int64_t row) {
  return m->data + row * m->row_bytes;
}
FATHOM_INLINE const uint8_t* row_scales(const struct EncodedMatrix* m, int64_t row) {
  return m->scales + (row >> m->scale_row_shift) * m->scale_row_bytes;
}
FATHOM_INLINE const uint8_t* row_biases(const struct EncodedMatrix* m, int64_t row) {
  return m->biases + row * m->bias_row_bytes;
}

// The last, partial block of a row: only types with one code a column have one. Zero bytes decode to zero.
FATHOM_INLINE void copy_tail(enum Encoding encoding, const uint8_t* p, int64_t columns, uint8_t* block) {
  memset(block, 0, 128);
  memcpy(block, p, (size_t)(columns * (block_bytes(encoding) / kBlock)));
}

FATHOM_INLINE void decode_rows(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                               int64_t count, float* panel, int64_t stride) {
  const int64_t blocks = m->cols / kBlock;
  const int64_t tail = m->cols % kBlock;
  for (int64_t r = row; r < row + count; ++r, panel += stride) {
    const uint8_t* data = row_data(m, r);
    const uint8_t* scales = row_scales(m, r);
    F columns[kBlockVectors];
    float* out = panel;
    for (int64_t b = 0; b < blocks; ++b, out += kBlock) {
      decode_block(encoding, data, scales, b, columns);
      for (int v = 0; v < kBlockVectors; ++v) f_store(out + v * kLanes, columns[v]);
    }
    if (tail != 0) {
      uint8_t block[128];
      copy_tail(encoding, data + blocks * block_bytes(encoding), tail, block);
      decode_block(encoding, block, scales == NULL ? scales : scales + blocks, 0, columns);
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
    case kEncodingQ2K: return decode_rows(kEncodingQ2K, m, row, count, panel, stride);
    case kEncodingQ4K: return decode_rows(kEncodingQ4K, m, row, count, panel, stride);
    default: return;
  }
}

static void decode_q8(const uint8_t* packed, float* out, int64_t width) {
  const uint8_t* scales = packed + width;
  F columns[kBlockVectors];
  for (int64_t k = 0; k < width; k += kBlock) {
    fp8_block(packed + k, scales + k / kBlock, columns);
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
