// Random rows in any encoding: random bytes with sane scales, not encoded numbers, so that they cost no more
// than writing them.
#pragma once

#include <cstdint>
#include <string_view>

#include "quantize/pack_stream.h"

namespace fathom {

/// Root mean square of the values that a tensor is given: what keeps activations near 1 in every layer.
/// 0: values of [1, 1.25), as the weights of norms have.
double synth_magnitude(const TensorShape& tensor);

/// Values depend on seed, tensor, expert and row alone. Encodings: those that encode_row() writes, and FP8
/// and FP4 with scales apart.
class RandomRows final : public RowSource {
 public:
  explicit RandomRows(uint64_t seed) : seed_(seed) {}
  Result<void> begin(const PlannedUnit& unit, int64_t index) override;
  Result<void> fill(int64_t row, int64_t count, const RowTarget& out) const override;
  Result<std::span<const std::byte>> copy(const PlannedUnit& unit) override;

 private:
  // How random bytes of the unit's encoding become valid ones.
  struct Stamp {
    uint64_t keep = ~uint64_t{0};  // bits of each 8 bytes that stay random
    uint64_t set = 0;              // bits that are set then
    int block_bytes = 0;           // 0: nothing more to do
    int half_at[2] = {-1, -1};     // places of half-precision factors in a block
    uint16_t half[2] = {0, 0};
    int exponent_at = -1;  // place of an E8M0 scale in a block
    uint8_t exponent = 0;  // largest value of E8M0 scales; half of them are one less
  };
  static Stamp make_stamp(DType encoding, double magnitude);
  static void apply(const Stamp& stamp, std::byte* row, int64_t row_bytes);
  static double magnitude_at_unit_scale(DType encoding);

  uint64_t seed_;
  uint64_t key_ = 0;
  const PlannedUnit* unit_ = nullptr;
  Stamp stamp_;
};

}  // namespace fathom
