// Units of 256 columns that are taken apart as layouts.h says: a source has two vectors, codes in its bytes.
#pragma once

#include "cpu/avx512/units.h"

namespace fathom::cpu {
namespace {

// Lane by lane the four bytes that `index` names of 64 or 128.
FATHOM_INLINE __m512i gather64(const uint32_t* index, const uint8_t* p) {
  return _mm512_permutexvar_epi32(load64(index), load64(p));
}
FATHOM_INLINE __m512i gather128(const uint32_t* index, __m512i first, __m512i second) {
  return _mm512_permutex2var_epi32(first, load64(index), second);
}
FATHOM_INLINE __m512i gather32(const uint32_t* index, const uint8_t* p) {
  return _mm512_permutexvar_epi32(load64(index),
                                  _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i*)p)));
}
// The bits of `mask` in every byte, of `high` those that are not in `low_mask`.
FATHOM_INLINE __m512i joined(__m512i low, uint8_t low_mask, __m512i high, uint8_t mask) {
  const __m512i both = _mm512_ternarylogic_epi32(_mm512_set1_epi8((char)low_mask), low, high, 0xCA);
  return _mm512_and_si512(both, _mm512_set1_epi8((char)mask));
}

FATHOM_INLINE __m512i four_blocks(const uint8_t* p, int64_t stride) {
  const __m512i one = _mm512_castsi128_si512(load16(p));
  const __m512i two = _mm512_inserti32x4(one, load16(p + stride), 1);
  return _mm512_inserti32x4(_mm512_inserti32x4(two, load16(p + 2 * stride), 2), load16(p + 3 * stride), 3);
}
// Of eight blocks of Q8_0: four bytes of sixteen columns to every lane.
FATHOM_INLINE __m512i q8_0_bytes(const uint8_t* block, int source) {
  __m512i two[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const uint8_t* p = block + 68 * i + 2;
    const __m256i first = _mm256_loadu_si256((const __m256i*)p);
    two[i] =
        _mm512_inserti64x4(_mm512_castsi256_si512(first), _mm256_loadu_si256((const __m256i*)(p + 34)), 1);
  }
  const __m512i a =
      source < 2 ? _mm512_unpacklo_epi32(two[0], two[1]) : _mm512_unpackhi_epi32(two[0], two[1]);
  const __m512i b =
      source < 2 ? _mm512_unpacklo_epi32(two[2], two[3]) : _mm512_unpackhi_epi32(two[2], two[3]);
  return source % 2 == 0 ? _mm512_unpacklo_epi64(a, b) : _mm512_unpackhi_epi64(a, b);
}

// Source `source` (0..3) of the unit at p.
FATHOM_INLINE __m512i gathered_source(enum Encoding encoding, const uint8_t* p, int source) {
  if (encoding == kEncodingQ8_0) return q8_0_bytes(p, source);
  const Layout* where = layout(encoding);
  const uint32_t* low_index = where->low_index[source];
  __m512i low, high;
  switch (encoding) {
    case kEncodingQ2K:
      low = gather64(low_index, p + 16);
      break;
    case kEncodingQ3K:
      low = gather64(low_index, p + 32);
      break;
    case kEncodingQ4K:
      low = gather128(low_index, load64(p + 16), load64(p + 80));
      break;
    case kEncodingQ5K:
      low = gather128(low_index, load64(p + 48), load64(p + 112));
      break;
    case kEncodingQ6K:
      low = gather128(low_index, load64(p), load64(p + 64));
      break;
    case kEncodingIq4Nl:
      low = gather128(low_index, four_blocks(p + 2, 18), four_blocks(p + 74, 18));
      break;
    default:
      low = gather128(low_index, load64(p + 8), load64(p + 72));
      break;
  }
  low = _mm512_rorv_epi32(low, load64(where->low_shift));
  if (encoding == kEncodingQ2K) return _mm512_and_si512(low, _mm512_set1_epi8(3));
  if (encoding == kEncodingQ4K) return _mm512_and_si512(low, _mm512_set1_epi8(15));
  if (encoding == kEncodingIq4Xs || encoding == kEncodingIq4Nl) return low;
  const uint32_t* high_index = where->high_index[source];
  high = encoding == kEncodingQ3K   ? gather32(high_index, p)
         : encoding == kEncodingQ5K ? gather32(high_index, p + 16)
                                    : gather64(high_index, p + 128);
  high = _mm512_rorv_epi32(high, load64(where->high_shift));
  if (encoding == kEncodingQ3K) return joined(low, 3, high, 7);
  return joined(low, 15, high, encoding == kEncodingQ5K ? 31 : 63);
}

// The vector of the even or of the odd bytes of a source.
FATHOM_INLINE __m512i gathered_vector(enum Encoding encoding, __m512i bytes, int is_odd) {
  if (encoding == kEncodingQ8_0) return _mm512_srai_epi16(is_odd ? bytes : _mm512_slli_epi16(bytes, 8), 8);
  if (encoding == kEncodingIq4Xs || encoding == kEncodingIq4Nl)
    return _mm512_permutexvar_epi16(is_odd ? _mm512_srli_epi16(bytes, 8) : bytes, load64(kIq4Values.word));
  return is_odd ? _mm512_srli_epi16(bytes, 8) : _mm512_and_si512(bytes, _mm512_set1_epi16(255));
}

}  // namespace
}  // namespace fathom::cpu
