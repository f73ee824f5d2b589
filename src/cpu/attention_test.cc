#include "cpu/testing.h"
#include "ops/kv_format.h"

namespace fathom::cpu_testing {
namespace {

struct Shape {
  int heads, head_dim, window, top_k;
  KvFormat window_format, compressed_format;
};

// Rows at increasing positions of one sequence: a ring of earlier rows, fresh rows of this step, and
// compressed rows, some of them selected.
class Sequence {
 public:
  static constexpr int kRows = 19;

  Sequence(const Shape& shape, int first_position) : shape_(shape), ring_slots_(shape.window + 3) {
    Random random(static_cast<uint32_t>(shape.heads * 100 + shape.head_dim + first_position));
    query_ = random.bf16s(int64_t{kRows} * shape.heads * shape.head_dim);
    sinks_ = random.floats(shape.heads);
    ring_ = cache(random, shape.window_format, ring_slots_);
    fresh_ = cache(random, shape.window_format, kRows);
    compressed_ = cache(random, shape.compressed_format, kCompressed);
    for (int row = 0; row < kRows; ++row) {
      const int position = first_position + row;
      rows_.push_back({.ring = ring_.data(),
                       .fresh = fresh_.data(),
                       .compressed = compressed_.data(),
                       .ring_slots = ring_slots_,
                       .fresh_begin = first_position,
                       .window_begin = std::max(0, position - shape.window + 1),
                       .position = position});
      const int present = row % 4 == 3 ? 0 : std::min(shape.top_k, row * 7);
      for (int slot = 0; slot < shape.top_k; ++slot)
        selected_.push_back(slot < present ? slot * kCompressed / shape.top_k : -1);
    }
  }

  void check(Numerics numerics, bool with_selection, const Bound& bound) const {
    const int64_t width = int64_t{shape_.heads} * shape_.head_dim;
    check_operation(
        "sparse_attention", kRows, width,
        [&](Backend& backend, int64_t first, int64_t rows, float* out) {
          backend.sparse_attention(
              {.query = query_.data() + first * width,
               .row = rows_.data() + first,
               .selected = with_selection ? selected_.data() + first * shape_.top_k : nullptr,
               .sinks = sinks_.data(),
               .rows = rows,
               .heads = shape_.heads,
               .head_dim = shape_.head_dim,
               .window = shape_.window,
               .top_k = shape_.top_k,
               .scale = 0.3f,
               .window_format = shape_.window_format,
               .compressed_format = shape_.compressed_format,
               .out = out + first * width,
               .numerics = numerics});
        },
        bound);
  }

 private:
  static constexpr int kCompressed = 300;

  std::vector<std::byte> cache(Random& random, KvFormat format, int rows) const {
    const int64_t row_bytes = kv_row_bytes(format, shape_.head_dim);
    std::vector<std::byte> bytes(static_cast<size_t>(rows * row_bytes));
    for (int row = 0; row < rows; ++row)
      encode_kv_row(format, random.floats(shape_.head_dim).data(), shape_.head_dim,
                    bytes.data() + row * row_bytes);
    return bytes;
  }

  Shape shape_;
  int ring_slots_;
  std::vector<float> query_, sinks_;
  std::vector<std::byte> ring_, fresh_, compressed_;
  std::vector<AttentionRow> rows_;
  std::vector<int32_t> selected_;
};

constexpr Shape kShapes[] = {
    {8, 64, 64, 64, KvFormat::kFp8Group32, KvFormat::kFp4Group16},
    {5, 96, 20, 70, KvFormat::kFp8Group32, KvFormat::kFp4Group16},
    {3, 16, 128, 33, KvFormat::kF32, KvFormat::kFp4Group16},
    {1, 17, 7, 5, KvFormat::kF32, KvFormat::kF32},
};

TEST(CpuAttention, MatchesTheDefinition) {
  // Sums in another order and an exp within two units in the last place, weighed by probabilities.
  for (const Shape& shape : kShapes)
    for (int first : {0, 1000})
      for (bool with_selection : {false, true})
        Sequence(shape, first).check(Numerics::kExact, with_selection, {.of_norm = 1e-5f});
}

TEST(CpuAttention, MatchesTheDefinitionWithRounding) {
  // A probability next to a rounding boundary may fall on the other side: 2^-9 of one key's weight.
  for (const Shape& shape : kShapes)
    Sequence(shape, 300).check(Numerics::kOfficial, true, {.of_norm = 1e-3f, .flipped_share = 0.01f});
}

}  // namespace
}  // namespace fathom::cpu_testing
