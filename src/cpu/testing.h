// What the tests of this room share: random data, and the comparison of an operation with its definition for
// every instruction set of this machine, every number of threads and every way to cut the rows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "base/float_types.h"
#include "cpu/backend.h"
#include "ops/reference/backend.h"

namespace fathom::cpu_testing {

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  std::vector<float> floats(int64_t count, float scale = 1.0f) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = std::normal_distribution<float>()(engine_) * scale;
    return values;
  }
  std::vector<float> bf16s(int64_t count, float scale = 1.0f) {
    std::vector<float> values = floats(count, scale);
    for (float& value : values) value = round_to_bf16(value);
    return values;
  }

 private:
  std::mt19937 engine_;
};

/// A random matrix of any encoding, its bytes at odd addresses.
struct TestWeight {
  WeightMatrix matrix;
  std::vector<std::byte> data, scales, biases;
};
inline TestWeight make_weight(DType type, int64_t rows, int64_t cols, uint32_t seed, int bits = 4) {
  Random random(seed);
  TestWeight weight;
  WeightMatrix& m = weight.matrix;
  m.type = type;
  m.rows = rows;
  m.cols = cols;
  if (type == DType::kAffine) {
    m.bits = static_cast<uint16_t>(bits);
    m.group = 64;
    m.scale_type = DType::kBF16;
  }
  m.row_bytes = row_bytes_of(type, cols, m.bits);
  const auto byte = [&](int low, int high) { return random.integer(low, high); };
  const auto fill = [&](std::vector<std::byte>& bytes, int64_t count, auto&& value) {
    bytes.resize(static_cast<size_t>(count) + 1);
    for (int64_t at = 0; at < count; ++at)
      bytes[static_cast<size_t>(at) + 1] = std::byte{static_cast<uint8_t>(value(at))};
    return bytes.data() + 1;
  };
  // Elements of `size` bytes whose high byte is a random sign and [low, high]: no infinity, no NaN.
  const auto fill_elements = [&](int size, int low, int high) {
    m.data = fill(weight.data, rows * m.row_bytes, [&](int64_t at) {
      return at % size == size - 1 ? byte(0, 1) * 128 + byte(low, high) : byte(0, 255);
    });
  };
  // Blocks with f16 scales at two offsets, kept near 2^-5.
  const auto fill_blocks = [&](int size, int offset, int second) {
    m.data = fill(weight.data, rows * m.row_bytes, [&](int64_t at) {
      const int64_t place = at % size;
      return place == offset + 1 || place == second + 1 ? byte(0x28, 0x2F) : byte(0, 255);
    });
  };
  switch (type) {
    case DType::kF32: fill_elements(4, 0x3E, 0x3F); break;
    case DType::kBF16: fill_elements(2, 0x3E, 0x3F); break;
    case DType::kF16: fill_elements(2, 0, 0x3C); break;
    case DType::kFp8Tile32: case DType::kFp8Row32: fill_elements(1, 0, 126); break;
    case DType::kQ8_0: fill_blocks(34, 0, 0); break;
    case DType::kQ4_K: fill_blocks(144, 0, 2); break;
    case DType::kQ2_K: fill_blocks(84, 80, 82); break;
    case DType::kQ3_K: fill_blocks(110, 108, 108); break;
    case DType::kQ5_K: fill_blocks(176, 0, 2); break;
    case DType::kQ6_K: fill_blocks(210, 208, 208); break;
    case DType::kIQ1_S: fill_blocks(50, 0, 0); break;
    case DType::kIQ2_XXS: fill_blocks(66, 0, 0); break;
    case DType::kIQ2_XS: fill_blocks(74, 0, 0); break;
    case DType::kIQ2_S: fill_blocks(82, 0, 0); break;
    case DType::kIQ3_XXS: fill_blocks(98, 0, 0); break;
    case DType::kIQ3_S: fill_blocks(110, 0, 0); break;
    case DType::kIQ4_NL: fill_blocks(18, 0, 0); break;
    case DType::kIQ4_XS: fill_blocks(136, 0, 0); break;
    case DType::kIQ1_M:  // the scale's highest four bits are those of the block's last byte
      m.data = fill(weight.data, rows * m.row_bytes,
                    [&](int64_t at) { return at % 56 == 55 ? byte(0x20, 0x2F) : byte(0, 255); });
      break;
    case DType::kMXFP4:
      m.data = fill(weight.data, rows * m.row_bytes,
                    [&](int64_t at) { return at % 17 == 0 ? byte(118, 130) : byte(0, 255); });
      break;
    default: m.data = fill(weight.data, rows * m.row_bytes, [&](int64_t) { return byte(0, 255); }); break;
  }
  const auto power = [&](int64_t) { return byte(110, 140); };
  if (type == DType::kFp8Tile32) {
    m.scale_row_bytes = (cols + 31) / 32;
    m.scales = fill(weight.scales, (rows + 31) / 32 * m.scale_row_bytes, power);
  } else if (type == DType::kFp8Row32 || type == DType::kFp4Row32) {
    m.scale_row_bytes = cols / 32;
    m.scales = fill(weight.scales, rows * m.scale_row_bytes, power);
  } else if (type == DType::kAffine) {
    const auto near_one = [&](int64_t at) { return at % 2 == 1 ? 0x3D : byte(0, 255); };
    m.scale_row_bytes = m.bias_row_bytes = cols / m.group * 2;
    m.scales = fill(weight.scales, rows * m.scale_row_bytes, near_one);
    m.biases = fill(weight.biases, rows * m.bias_row_bytes, near_one);
  }
  return weight;
}

/// How results may differ from the definition's.
struct Bound {
  // Of the norm of a row of results. 0: equal to the bit.
  float of_norm = 0;
  // Results are bfloat16: apart from `of_norm`, at most one unit in the last place, and at most this share of
  // the results may differ at all.
  float flipped_share = 0;
};

/// An operation on rows [first, first + rows): results of row r at out + r * width.
using RowOperation = std::function<void(Backend&, int64_t first, int64_t rows, float* out)>;

inline void expect_near(const std::vector<float>& found, const std::vector<float>& expected, int64_t width,
                        const Bound& bound) {
  if (bound.of_norm == 0) {
    for (size_t k = 0; k < found.size(); ++k)
      ASSERT_EQ(bits_of_float(found[k]), bits_of_float(expected[k]))
          << "element " << k << ": found " << found[k] << ", expected " << expected[k];
    return;
  }
  size_t flips = 0;
  for (size_t begin = 0; begin < found.size(); begin += static_cast<size_t>(width)) {
    double norm = 0;
    const size_t end = begin + static_cast<size_t>(width);
    for (size_t k = begin; k < end; ++k) norm += double{expected[k]} * expected[k];
    const float allowed = bound.of_norm * static_cast<float>(std::sqrt(norm / static_cast<double>(width)));
    for (size_t k = begin; k < end; ++k) {
      if (found[k] == expected[k]) continue;
      ++flips;
      const float last_place = bound.flipped_share == 0 ? 0.0f : std::ldexp(1.0f, std::ilogb(expected[k]) - 7);
      ASSERT_LE(std::fabs(found[k] - expected[k]), std::max(allowed, last_place))
          << "element " << k << ": found " << found[k] << ", expected " << expected[k];
    }
  }
  if (bound.flipped_share > 0) {
    EXPECT_LE(static_cast<double>(flips), 1 + bound.flipped_share * static_cast<double>(found.size()));
  }
}

inline std::unique_ptr<Backend> backend_of(CpuIsa isa, int thread_count) {
  return std::move(make_cpu_backend({.thread_count = thread_count, .isa = isa})).value();
}

/// Against the definition within `bound`; against itself, however rows are cut and threads counted, exactly.
inline void check_operation(const char* name, int64_t rows, int64_t width, const RowOperation& operation,
                            const Bound& bound) {
  SCOPED_TRACE(name);
  const auto run = [&](Backend& backend, int64_t group) {
    std::vector<float> out(static_cast<size_t>(rows * width), -77.0f);
    for (int64_t at = 0; at < rows; at += group) operation(backend, at, std::min(group, rows - at), out.data());
    return out;
  };
  reference::ReferenceBackend reference;
  const std::vector<float> expected = run(reference, rows);
  for (CpuIsa isa : available_cpu_isas()) {
    SCOPED_TRACE(cpu_isa_name(isa));
    std::vector<float> first_result;
    for (int threads : {1, 2, 3}) {
      const std::unique_ptr<Backend> backend = backend_of(isa, threads);
      for (int64_t group : {rows, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{5}, int64_t{8}, int64_t{17}}) {
        if (threads > 1 && (group == 2 || group == 3)) continue;  // too few rows for the cuts to differ
        std::vector<float> result = run(*backend, group);
        if (first_result.empty()) {
          expect_near(result, expected, width, bound);
          first_result = std::move(result);
        } else {
          ASSERT_EQ(std::memcmp(result.data(), first_result.data(), result.size() * sizeof(float)), 0)
              << threads << " threads, groups of " << group;
        }
      }
    }
  }
}

}  // namespace fathom::cpu_testing
