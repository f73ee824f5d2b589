// SHA-256 with the SHA instructions of x86: four rounds a step, some six times as fast as plain C++. Only the
// functions marked with them use these instructions, so the file needs no flags of its own.
#include "base/sha256_blocks.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define FATHOM_SHA __attribute__((target("sha,sse4.1,ssse3")))

namespace fathom {
namespace {

// The instructions want the eight words as (a, b, e, f) and (c, d, g, h), the first in the highest lane.
FATHOM_SHA void blocks_sha(uint32_t* state, const uint8_t* bytes, size_t blocks) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const auto word = [state](int at) { return static_cast<int>(state[at]); };
  __m128i abef = _mm_set_epi32(word(0), word(1), word(4), word(5));
  __m128i cdgh = _mm_set_epi32(word(2), word(3), word(6), word(7));
  for (; blocks > 0; --blocks, bytes += 64) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    // Four groups of four message words; each group gives way to the one 16 words on once it is used.
    __m128i words[4];
    for (int group = 0; group < 4; ++group)
      words[group] = _mm_shuffle_epi8(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 16 * group)), big_endian);
#pragma GCC unroll 16
    for (int step = 0; step < 16; ++step) {
      __m128i& now = words[step % 4];
      const __m128i constants =
          _mm_load_si128(reinterpret_cast<const __m128i*>(kSha256Constants + 4 * step));
      const __m128i sum = _mm_add_epi32(now, constants);
      // Two rounds give the new (a, b, e, f); the old one is the new (c, d, g, h), hence the exchange of roles.
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      if (step >= 12) continue;
      const __m128i newest = words[(step + 3) % 4];
      const __m128i seven_back = _mm_alignr_epi8(newest, words[(step + 2) % 4], 4);
      now = _mm_sha256msg2_epu32(
          _mm_add_epi32(_mm_sha256msg1_epu32(now, words[(step + 1) % 4]), seven_back), newest);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  state[0] = static_cast<uint32_t>(_mm_extract_epi32(abef, 3));
  state[1] = static_cast<uint32_t>(_mm_extract_epi32(abef, 2));
  state[4] = static_cast<uint32_t>(_mm_extract_epi32(abef, 1));
  state[5] = static_cast<uint32_t>(_mm_extract_epi32(abef, 0));
  state[2] = static_cast<uint32_t>(_mm_extract_epi32(cdgh, 3));
  state[3] = static_cast<uint32_t>(_mm_extract_epi32(cdgh, 2));
  state[6] = static_cast<uint32_t>(_mm_extract_epi32(cdgh, 1));
  state[7] = static_cast<uint32_t>(_mm_extract_epi32(cdgh, 0));
}

}  // namespace

Sha256BlocksFn sha256_blocks_x86() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has_sse41 = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSSE3) != 0 && (c & bit_SSE4_1) != 0;
  constexpr unsigned kShaBit = 1u << 29;
  if (!has_sse41 || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (b & kShaBit) == 0) return nullptr;
  return blocks_sha;
}

}  // namespace fathom

#else

namespace fathom {
Sha256BlocksFn sha256_blocks_x86() { return nullptr; }
}  // namespace fathom

#endif
