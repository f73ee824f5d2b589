#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/sha256_blocks.h"

namespace fathom {
namespace {

void compress(uint32_t* state, const uint8_t* block) {
  uint32_t w[64];
  for (int t = 0; t < 16; ++t)
    w[t] = uint32_t{block[4 * t]} << 24 | uint32_t{block[4 * t + 1]} << 16 | uint32_t{block[4 * t + 2]} << 8 |
           uint32_t{block[4 * t + 3]};
  for (int t = 16; t < 64; ++t) {
    const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  uint32_t words[8];
  std::copy_n(state, 8, words);
  auto [a, b, c, d, e, f, g, h] = words;
  for (int t = 0; t < 64; ++t) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kSha256Constants[t] + w[t];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
  for (size_t word = 0; word < 8; ++word) state[word] += sums[word];
}

Sha256BlocksFn choose_blocks() {
  const Sha256BlocksFn fast = sha256_blocks_x86();
  return fast != nullptr ? fast : sha256_blocks_portable;
}

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void sha256_blocks_portable(uint32_t* state, const uint8_t* bytes, size_t blocks) {
  for (; blocks > 0; --blocks, bytes += 64) compress(state, bytes);
}

void Sha256::update(std::span<const std::byte> bytes) {
  static const Sha256BlocksFn compress_blocks = choose_blocks();
  size_t filled = total_bytes_ % 64;
  total_bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (filled == 0 && bytes.size() >= 64) {
      const size_t blocks = bytes.size() / 64;
      compress_blocks(state_.data(), reinterpret_cast<const uint8_t*>(bytes.data()), blocks);
      bytes = bytes.subspan(blocks * 64);
      continue;
    }
    const size_t take = std::min(bytes.size(), 64 - filled);
    std::memcpy(pending_.data() + filled, bytes.data(), take);
    if (filled + take == 64) compress_blocks(state_.data(), pending_.data(), 1);
    filled = (filled + take) % 64;
    bytes = bytes.subspan(take);
  }
}

std::array<uint8_t, 32> Sha256::finish() {
  const uint64_t total_bits = total_bytes_ * 8;
  const std::byte one_bit{0x80};
  update({&one_bit, 1});
  const std::byte zero{0};
  while (total_bytes_ % 64 != 56) update({&zero, 1});
  std::byte length[8];
  for (int k = 0; k < 8; ++k) length[k] = static_cast<std::byte>(total_bits >> (56 - 8 * k));
  update(length);
  std::array<uint8_t, 32> digest;
  for (size_t k = 0; k < 32; ++k) digest[k] = static_cast<uint8_t>(state_[k / 4] >> (24 - 8 * (k % 4)));
  return digest;
}

std::array<uint8_t, 32> sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

std::string hex_string(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace fathom
