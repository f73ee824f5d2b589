// SHA-256 (FIPS 180-4), incremental.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace fathom {

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  /// Ends the message; the object may not be used afterwards.
  std::array<uint8_t, 32> finish();

 private:
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> pending_{};
  uint64_t total_bytes_ = 0;
};

std::array<uint8_t, 32> sha256(std::span<const std::byte> bytes);
std::string hex_string(std::span<const uint8_t> bytes);

}  // namespace fathom
