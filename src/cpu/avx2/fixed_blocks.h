// Blocks of 256 columns as integers: codes as 16-bit words and integer scales, so that
//   weight = factor * scale * code - floor,
// a scale for 32 columns (`has_wide_scales`) or for 16.
// Codes come 32 columns (a part) at a time, the even columns in one vector and the odd ones in another: of a
// vector's two halves the first has the first sixteen columns.
#pragma once

#include "cpu/avx2/fixed_grids.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE int has_wide_scales(enum Encoding encoding) {
  switch (encoding) {
    case kEncodingQ2K:
    case kEncodingQ3K:
    case kEncodingQ6K:
    case kEncodingIq2Xs:
    case kEncodingIq2S:
    case kEncodingIq1M: return 0;
    default: return 1;
  }
}
struct BlockScales {
  int32_t scale[16];  // the first eight of them where they are wide
  float factor;
  float floor[16];  // floor_count of them
};

FATHOM_INLINE I words(int16_t x) { return _mm256_set1_epi16(x); }
FATHOM_INLINE I right16(I x, int bits) { return _mm256_srli_epi16(x, bits); }
// The bits of `mask` after moving left by `bits`, which may be negative.
FATHOM_INLINE I moved16(I x, int bits, int16_t mask) {
  return i_and(bits < 0 ? right16(x, -bits) : _mm256_slli_epi16(x, bits), words(mask));
}
FATHOM_INLINE void split_signed(I bytes, I* even, I* odd) {
  *even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
  *odd = _mm256_srai_epi16(bytes, 8);
}
FATHOM_INLINE void split_unsigned(I bytes, I* even, I* odd) {
  *even = i_and(bytes, words(255));
  *odd = right16(bytes, 8);
}

// 16 bytes whose low nibbles are the first sixteen columns, as the bytes that `values` has for them.
FATHOM_INLINE I nibble_halves(const uint8_t* p, __m128i values) {
  const __m128i x = _mm_loadu_si128((const __m128i*)p);
  const I both = _mm256_inserti128_si256(_mm256_castsi128_si256(x), _mm_srli_epi16(x, 4), 1);
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), i_and(both, _mm256_set1_epi8(15)));
}
FATHOM_INLINE __m128i iq4_values() {
  return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}

FATHOM_INLINE void q2_k_part(const uint8_t* low, int part, I* even, I* odd) {
  const I x = i_load(low + 32 * (part / 4));
  *even = i_and(right16(x, 2 * (part % 4)), words(3));
  *odd = i_and(right16(x, 8 + 2 * (part % 4)), words(3));
}
FATHOM_INLINE void q4_k_part(const uint8_t* low, int part, I* even, I* odd) {
  const I x = i_load(low + 32 * (part / 2));
  *even = i_and(right16(x, 4 * (part % 2)), words(15));
  *odd = i_and(right16(x, 8 + 4 * (part % 2)), words(15));
}
// One more bit of each code from bit `part` of 32 bytes.
FATHOM_INLINE void add_high_bit(const uint8_t* high, int part, int place, I* even, I* odd) {
  const I x = i_load(high);
  *even = i_or(*even, moved16(x, place - part, (int16_t)(1 << place)));
  *odd = i_or(*odd, moved16(x, place - part - 8, (int16_t)(1 << place)));
}
FATHOM_INLINE void q6_k_part(const uint8_t* block, int part, I* even, I* odd) {
  const int quarter = part % 4;
  const I low = i_load(block + 64 * (part / 4) + 32 * (quarter % 2));
  const I high = i_load(block + 128 + 32 * (part / 4));
  const int nibble = 4 * (quarter / 2);
  *even = i_or(i_and(right16(low, nibble), words(15)), moved16(high, 4 - 2 * quarter, 0x30));
  *odd = i_or(i_and(right16(low, 8 + nibble), words(15)), moved16(high, -4 - 2 * quarter, 0x30));
  *even = _mm256_sub_epi16(*even, words(32));
  *odd = _mm256_sub_epi16(*odd, words(32));
}

FATHOM_INLINE void block_part(enum Encoding encoding, const uint8_t* block, int part, I* even, I* odd) {
  switch (encoding) {
    case kEncodingQ2K: return q2_k_part(block + 16, part, even, odd);
    case kEncodingQ3K:
      q2_k_part(block + 32, part, even, odd);
      add_high_bit(block, part, 2, even, odd);
      *even = _mm256_sub_epi16(*even, words(4));
      *odd = _mm256_sub_epi16(*odd, words(4));
      return;
    case kEncodingQ4K: return q4_k_part(block + 16, part, even, odd);
    case kEncodingQ5K:
      q4_k_part(block + 48, part, even, odd);
      return add_high_bit(block + 16, part, 4, even, odd);
    case kEncodingQ6K: return q6_k_part(block, part, even, odd);
    case kEncodingIq4Xs: return split_signed(nibble_halves(block + 8 + 16 * part, iq4_values()), even, odd);
    default: return split_signed(grid_codes(encoding, block, part), even, odd);
  }
}

// Eight scales and eight minima of six bits in twelve bytes.
FATHOM_INLINE void q4_k_scales(const uint8_t* block, struct BlockScales* out) {
  const uint32_t a = u32_at(block + 4), b = u32_at(block + 8), c = u32_at(block + 12);
  const uint32_t scale_high = (c & 0x0F0F0F0F) | ((a >> 6) & 0x03030303) << 4;
  const uint32_t floor_high = (c >> 4 & 0x0F0F0F0F) | ((b >> 6) & 0x03030303) << 4;
  const uint64_t scales = (a & 0x3F3F3F3F) | (uint64_t)scale_high << 32;
  const uint64_t floors = (b & 0x3F3F3F3F) | (uint64_t)floor_high << 32;
  _mm256_storeu_si256((__m256i*)out->scale, _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)scales)));
  out->factor = half_to_float(u16_at(block));
  f_store(out->floor, f_mul(f_set(half_to_float(u16_at(block + 2))),
                            f_from_i(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)floors)))));
}
FATHOM_INLINE void q2_k_scales(const uint8_t* block, struct BlockScales* out) {
  const float dmin = half_to_float(u16_at(block + 82));
  out->factor = half_to_float(u16_at(block + 80));
  for (int half = 0; half < 2; ++half) {
    const I both = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)(block + 8 * half)));
    _mm256_storeu_si256((__m256i*)(out->scale + 8 * half), i_and(both, i_set(15)));
    f_store(out->floor + 8 * half, f_mul(f_set(dmin), f_from_i(i_right(both, 4))));
  }
}
FATHOM_INLINE void store_bytes16(__m128i bytes, struct BlockScales* out) {
  _mm256_storeu_si256((__m256i*)out->scale, _mm256_cvtepi8_epi32(bytes));
  _mm256_storeu_si256((__m256i*)(out->scale + 8), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
}
// Six bits: four in the nibbles of eight bytes, two in the pairs of four more.
FATHOM_INLINE void q3_k_scales(const uint8_t* block, struct BlockScales* out) {
  const uint32_t a = u32_at(block + 96), b = u32_at(block + 100), c = u32_at(block + 104);
  const __m128i low = _mm_setr_epi32((int)(a & 0x0F0F0F0F), (int)(b & 0x0F0F0F0F), (int)(a >> 4 & 0x0F0F0F0F),
                                     (int)(b >> 4 & 0x0F0F0F0F));
  const __m128i high = _mm_setr_epi32((int)(c & 0x03030303), (int)(c >> 2 & 0x03030303),
                                      (int)(c >> 4 & 0x03030303), (int)(c >> 6 & 0x03030303));
  store_bytes16(_mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16(high, 4)), _mm_set1_epi8(32)), out);
  out->factor = half_to_float(u16_at(block + 108));
}
FATHOM_INLINE void iq4_xs_scales(const uint8_t* block, struct BlockScales* out) {
  const int high = u16_at(block + 2);
  for (int group = 0; group < 8; ++group) {
    const int low = block[4 + group / 2] >> (4 * (group % 2)) & 15;
    out->scale[group] = (low | (high >> (2 * group) & 3) << 4) - 32;
  }
  out->factor = half_to_float(u16_at(block));
}
FATHOM_INLINE void block_scales(enum Encoding encoding, const uint8_t* block, struct BlockScales* out) {
  switch (encoding) {
    case kEncodingQ2K: return q2_k_scales(block, out);
    case kEncodingQ3K: return q3_k_scales(block, out);
    case kEncodingQ4K:
    case kEncodingQ5K: return q4_k_scales(block, out);
    case kEncodingQ6K:
      store_bytes16(_mm_loadu_si128((const __m128i*)(block + 192)), out);
      out->factor = half_to_float(u16_at(block + 208));
      return;
    case kEncodingIq4Xs: return iq4_xs_scales(block, out);
    default: return grid_scales(encoding, block, out->scale, &out->factor);
  }
}

FATHOM_INLINE int block256_bytes(enum Encoding encoding) {
  switch (encoding) {
    case kEncodingQ2K: return 84;
    case kEncodingQ3K: return 110;
    case kEncodingQ4K: return 144;
    case kEncodingQ5K: return 176;
    case kEncodingQ6K: return 210;
    case kEncodingIq1S: return 50;
    case kEncodingIq1M: return 56;
    case kEncodingIq2Xxs: return 66;
    case kEncodingIq2Xs: return 74;
    case kEncodingIq2S: return 82;
    case kEncodingIq3Xxs: return 98;
    case kEncodingIq3S: return 110;
    default: return 136;  // IQ4_XS
  }
}

}  // namespace
}  // namespace fathom::cpu
