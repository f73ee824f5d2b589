#include "quantize/synth_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/float_types.h"

namespace fathom {
namespace {

// The finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators). Random
// access by counter: rows can be made in any order by any thread.
uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}
constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;

void fill_random(uint64_t key, std::byte* out, int64_t bytes) {
  int64_t at = 0;
  for (; at + 8 <= bytes; at += 8, key += kStep) {
    const uint64_t word = mix(key);
    std::memcpy(out + at, &word, 8);
  }
  const uint64_t word = mix(key);
  std::memcpy(out + at, &word, static_cast<size_t>(bytes - at));
}

uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return hash;
}

// Root mean squares of random codes at scale 1.
constexpr double kFp8Magnitude = 0.598;  // e4m3 codes below 2
constexpr double kFp4Magnitude = 2.926;  // all e2m1 codes
// Of a float whose mantissa, sign and lowest exponent bit are random, over the smallest one.
constexpr double kFloatMagnitude = 2.41;
constexpr uint64_t kFp8Keep = 0xBFBFBFBFBFBFBFBFu;  // clears the highest exponent bit: no NaN

uint8_t scale_exponent(double scale) {
  // Half of the scales are one step smaller: 0.8 makes up for it.
  return static_cast<uint8_t>(std::clamp(127 + std::lround(std::log2(scale / 0.8)), 2L, 250L));
}

uint64_t repeat16(uint64_t value) { return value * 0x0001000100010001u; }
uint64_t repeat32(uint64_t value) { return value * 0x0000000100000001u; }

struct FloatLayout {
  int bits;
  int mantissa_bits;
  int bias;
};

// A float format with a random sign, mantissa and lowest exponent bit; or, for magnitude 0, values in
// [1, 1.25).
void make_float_stamp(const FloatLayout& format, double magnitude, uint64_t* keep, uint64_t* set) {
  const auto repeat = format.bits == 16 ? repeat16 : repeat32;
  const uint64_t mantissa = (uint64_t{1} << format.mantissa_bits) - 1;
  if (magnitude == 0) {
    *keep = repeat(mantissa >> 2);
    *set = repeat(static_cast<uint64_t>(format.bias) << format.mantissa_bits);
    return;
  }
  const int64_t exponent = format.bias + std::lround(std::log2(magnitude / kFloatMagnitude));
  const uint64_t even = static_cast<uint64_t>(std::max<int64_t>(exponent, 2)) & ~uint64_t{1};
  *keep = repeat(uint64_t{1} << (format.bits - 1) | mantissa | uint64_t{1} << format.mantissa_bits);
  *set = repeat(even << format.mantissa_bits);
}

struct HalfPlaces {
  int d = -1;
  int dmin = -1;
  double dmin_over_d = 0;  // makes the mean of the values zero when scales and minima are alike
};
HalfPlaces half_places(DType type) {
  switch (type) {
    case DType::kQ2_K: return {80, 82, 1.5};
    case DType::kQ3_K: return {108};
    case DType::kQ4_K: return {0, 2, 7.5};
    case DType::kQ5_K: return {0, 2, 15.5};
    case DType::kQ6_K: return {208};
    default: return {0};
  }
}

}  // namespace

double synth_magnitude(const TensorShape& tensor) {
  const auto ends = [&](std::string_view suffix) { return tensor.name.ends_with(suffix); };
  if (ends("norm.weight") || ends(".q_weight") || ends(".k_weight")) return 0;
  if (ends("embed.weight") || ends("_base") || ends("_scale") || ends("attn_sink")) return 0.3;
  if (ends(".bias") || ends(".bias_vl")) return 0.02;
  return 1 / std::sqrt(static_cast<double>(tensor.cols));
}

double RandomRows::magnitude_at_unit_scale(DType encoding) {
  constexpr int64_t kBlocks = 64;
  const DTypeInfo& info = dtype_info(encoding);
  const int64_t cols = kBlocks * info.block_elements;
  std::vector<std::byte> bytes(static_cast<size_t>(kBlocks * info.block_bytes));
  fill_random(1, bytes.data(), static_cast<int64_t>(bytes.size()));
  const HalfPlaces places = half_places(encoding);
  const Stamp unit{.block_bytes = info.block_bytes,
                   .half_at = {places.d, places.dmin},
                   .half = {f16_from_float(1), f16_from_float(static_cast<float>(places.dmin_over_d))}};
  apply(unit, bytes.data(), static_cast<int64_t>(bytes.size()));
  std::vector<float> values(static_cast<size_t>(cols));
  decode_row({.type = encoding, .rows = 1, .cols = cols, .data = bytes.data()}, 0, values.data());
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum / static_cast<double>(cols));
}

RandomRows::Stamp RandomRows::make_stamp(DType encoding, double magnitude) {
  Stamp stamp;
  const double block_magnitude = magnitude == 0 ? 1 : magnitude;
  switch (encoding) {
    case DType::kF32: make_float_stamp({32, 23, 127}, magnitude, &stamp.keep, &stamp.set); return stamp;
    case DType::kF16: make_float_stamp({16, 10, 15}, magnitude, &stamp.keep, &stamp.set); return stamp;
    case DType::kBF16: make_float_stamp({16, 7, 127}, magnitude, &stamp.keep, &stamp.set); return stamp;
    case DType::kFp8Tile32:
    case DType::kFp8Row32:
      stamp.keep = kFp8Keep;
      stamp.exponent = scale_exponent(block_magnitude / kFp8Magnitude);
      return stamp;
    case DType::kFp4Row32: stamp.exponent = scale_exponent(block_magnitude / kFp4Magnitude); return stamp;
    case DType::kMXFP4:
      stamp.block_bytes = dtype_info(encoding).block_bytes;
      stamp.exponent_at = 0;
      stamp.exponent = scale_exponent(block_magnitude / kFp4Magnitude);
      return stamp;
    default: break;
  }
  const HalfPlaces places = half_places(encoding);
  const double d = block_magnitude / magnitude_at_unit_scale(encoding);
  stamp.block_bytes = dtype_info(encoding).block_bytes;
  stamp.half_at[0] = places.d;
  stamp.half_at[1] = places.dmin;
  stamp.half[0] = f16_from_float(static_cast<float>(d));
  stamp.half[1] = f16_from_float(static_cast<float>(d * places.dmin_over_d));
  return stamp;
}

void RandomRows::apply(const Stamp& stamp, std::byte* row, int64_t row_bytes) {
  if (stamp.block_bytes > 0) {
    for (std::byte* block = row; block < row + row_bytes; block += stamp.block_bytes) {
      if (stamp.half_at[0] >= 0) std::memcpy(block + stamp.half_at[0], &stamp.half[0], 2);
      if (stamp.half_at[1] >= 0) std::memcpy(block + stamp.half_at[1], &stamp.half[1], 2);
      if (stamp.exponent_at >= 0) {
        const uint8_t drawn = static_cast<uint8_t>(block[stamp.exponent_at]);
        block[stamp.exponent_at] = static_cast<std::byte>(stamp.exponent - (drawn & 1));
      }
    }
    return;
  }
  if (stamp.keep == ~uint64_t{0}) return;
  for (int64_t at = 0; at < row_bytes; at += 8) {
    const size_t piece = static_cast<size_t>(std::min<int64_t>(8, row_bytes - at));
    uint64_t word = 0;
    std::memcpy(&word, row + at, piece);
    word = (word & stamp.keep) | stamp.set;
    std::memcpy(row + at, &word, piece);
  }
}

Result<void> RandomRows::begin(const PlannedUnit& unit, int64_t index) {
  unit_ = &unit;
  key_ = mix(seed_ ^ mix(hash_name(unit.tensor.name) + static_cast<uint64_t>(std::max(unit.expert, index))));
  stamp_ = make_stamp(unit.encoding, synth_magnitude(unit.tensor));
  return {};
}

Result<void> RandomRows::fill(int64_t row, int64_t count, const RowTarget& out) const {
  const int64_t value_bytes = unit_->value_row_bytes(), scale_bytes = unit_->scale_row_bytes();
  const uint64_t words =
      static_cast<uint64_t>(value_bytes + scale_bytes + 16) / 8;  // of a row, scales included
  for (int64_t r = 0; r < count; ++r) {
    const uint64_t key = key_ + static_cast<uint64_t>(row + r) * words * kStep;
    std::byte* const values = out.values + r * out.value_stride;
    fill_random(key, values, value_bytes);
    apply(stamp_, values, value_bytes);
    if (out.scales == nullptr || r % unit_->scale_rows() != 0) continue;
    std::byte* const scales = out.scales + r / unit_->scale_rows() * out.scale_stride;
    fill_random(~key, scales, scale_bytes);
    for (int64_t k = 0; k < scale_bytes; ++k)
      scales[k] = static_cast<std::byte>(stamp_.exponent - (static_cast<uint8_t>(scales[k]) & 1));
  }
  return {};
}

Result<std::span<const std::byte>> RandomRows::copy(const PlannedUnit& unit) {
  return Error::internal("tensor {}: there is nothing to copy it from", unit.tensor.name);
}

}  // namespace fathom
