// Panels of unpacked weight rows times many fixed-point rows; the same integer sums and the same order of
// float32 sums as fixed_dot.h and fixed_pairs.h.
//
// A panel row of blocks of 256: words (code times integer scale) [cols], then for each block a factor and its
// floors. Of runs of 32: words (codes) [cols], the scale of each run, for affine codes also its bias. Of pairs:
// words (codes) [pairs * 64], eight scales for each pair.
#pragma once

#include "cpu/avx2/fixed_dot.h"

namespace fathom::cpu {
namespace {

static int64_t fixed_panel_row_bytes(const struct EncodedMatrix* m) {
  int64_t bytes;
  if (is_paired(m->encoding)) {
    bytes = pair_count(m->cols) * (128 + 32);
  } else {
    const int floats = 1 + (m->encoding == kEncodingAffine ? 1 : floor_count(m->encoding));
    bytes = 2 * m->cols + 4 * floats * (m->cols / block_columns(m->encoding));
  }
  // Off the multiples of 4 KiB, where the rows of a tile would compete for places of the first cache.
  return (bytes + 63) / 64 * 64 + 64;
}

FATHOM_INLINE void store_words(uint8_t* out, I even, I odd) {
  _mm256_storeu_si256((__m256i*)out, even);
  _mm256_storeu_si256((__m256i*)(out + 32), odd);
}
FATHOM_INLINE void panel_of_blocks(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                   uint8_t* out) {
  const uint8_t* block = row_data(m, row);
  float* factors = (float*)(out + 2 * m->cols);
  float* floors = factors + m->cols / 256;
  for (int64_t b = 0; b < m->cols / 256; ++b, block += block256_bytes(encoding), out += 512) {
    struct BlockScales scales;
    block_scales_in_memory(encoding, block, &scales);
    factors[b] = scales.factor;
    memcpy(floors + floor_count(encoding) * b, scales.floor, (size_t)(4 * floor_count(encoding)));
#pragma GCC unroll 8
    for (int part = 0; part < 8; ++part) {
      I even, odd;
      block_part(encoding, block, part, &even, &odd);
      const I wide = part_scales(encoding, &scales, part);
      const I scale = _mm256_packs_epi32(wide, wide);
      store_words(out + 64 * part, _mm256_mullo_epi16(even, scale), _mm256_mullo_epi16(odd, scale));
    }
  }
}
FATHOM_INLINE void panel_of_runs(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                 uint8_t* out) {
  const int bits = encoding == kEncodingAffine ? m->bits : 0;
  const int bytes = run_bytes(encoding, bits);
  const int64_t blocks = m->cols / 32;
  const uint8_t* codes = row_data(m, row);
  float* scales = (float*)(out + 2 * m->cols);
  for (int64_t b = 0; b < blocks; ++b, codes += bytes, out += 64) {
    uint8_t last[64] = {0};
    const uint8_t* p = codes;
    if (encoding == kEncodingAffine && affine_reads_beyond(bits, blocks - b)) {
      memcpy(last, p, (size_t)bytes);
      p = last;
    }
    I even, odd;
    run_words(encoding, bits, p, &even, &odd);
    store_words(out, even, odd);
    scales[b] = run_scale(encoding, m, p, row_scales(m, row), b);
    if (encoding == kEncodingAffine)
      scales[blocks + b] = affine_number(row_biases(m, row), b * 32 / m->group, m->scale_type);
  }
}
FATHOM_INLINE void panel_of_pairs(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                  uint8_t* out) {
  float* scales = (float*)pair_scales_of(out, m->cols);
  for (int64_t pair = 0; pair < pair_count(m->cols); ++pair, out += 128, scales += 8) {
    uint8_t last[40];
    const struct PairPlace place =
        pair_place(encoding, row_data(m, row), row_scales(m, row), m->cols, pair, last);
    I words[4];
    pair_words(encoding, place.first, place.second, words);
    store_words(out, words[0], words[1]);
    store_words(out + 64, words[2], words[3]);
    f_store(scales, pair_scales(encoding, place.first, place.second, place.scales));
  }
}
FATHOM_INLINE void fixed_decode_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                   int64_t count, uint8_t* data) {
  const int64_t row_bytes = fixed_panel_row_bytes(m);
  for (int64_t r = row; r < row + count; ++r, data += row_bytes) {
    if (is_block256(encoding))
      panel_of_blocks(encoding, m, r, data);
    else if (is_paired(encoding))
      panel_of_pairs(encoding, m, r, data);
    else
      panel_of_runs(encoding, m, r, data);
  }
}

}  // namespace
}  // namespace fathom::cpu
