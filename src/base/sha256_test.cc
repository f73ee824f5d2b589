#include "base/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256_blocks.h"

namespace fathom {
namespace {

std::string hash_of(std::string_view text) { return hex_string(sha256(std::as_bytes(std::span(text)))); }

// The examples of FIPS 180-4 and its test-vector file.
TEST(Sha256, PublishedVectors) {
  EXPECT_EQ(hash_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
                    "lmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hash_of(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Lengths around the block and padding borders, fed in pieces of every size.
TEST(Sha256, PiecesMakeNoDifference) {
  for (const size_t length : {55u, 56u, 63u, 64u, 65u, 119u, 128u, 200u}) {
    std::string text(length, '\0');
    for (size_t at = 0; at < length; ++at) text[at] = static_cast<char>(at * 31 + 7);
    const std::string whole = hash_of(text);
    for (size_t piece = 1; piece <= length; ++piece) {
      Sha256 hash;
      for (size_t at = 0; at < length; at += piece)
        hash.update(std::as_bytes(std::span(text)).subspan(at, std::min(piece, length - at)));
      ASSERT_EQ(hex_string(hash.finish()), whole) << length << " in pieces of " << piece;
    }
  }
}

TEST(Sha256, InstructionsAgreeWithPlainCode) {
  const Sha256BlocksFn fast = sha256_blocks_x86();
  if (fast == nullptr) GTEST_SKIP() << "this machine has no SHA instructions";
  std::vector<uint8_t> bytes(64 * 9);
  uint32_t seed = 1;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>((seed = seed * 1664525 + 1013904223) >> 24);
  for (size_t blocks = 0; blocks <= 9; ++blocks) {
    uint32_t plain[8], quick[8];
    for (uint32_t word = 0; word < 8; ++word) plain[word] = quick[word] = word * 0x9e3779b9;
    sha256_blocks_portable(plain, bytes.data(), blocks);
    fast(quick, bytes.data(), blocks);
    for (int word = 0; word < 8; ++word) ASSERT_EQ(quick[word], plain[word]) << blocks << " blocks, word " << word;
  }
}

}  // namespace
}  // namespace fathom
