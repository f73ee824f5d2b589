#include "cpu/testing.h"
#include "ops/kv_format.h"

namespace fathom::cpu_testing {
namespace {

constexpr int64_t kRows = 19;
constexpr int kMostKeys = 700;

struct Shape {
  int heads, key_dim;
  KvFormat format;
};

// Two sequences; the rows of the second see few keys, its first none at all.
class Keys {
 public:
  explicit Keys(const Shape& shape) : shape_(shape) {
    Random random(static_cast<uint32_t>(shape.key_dim));
    query_ = random.bf16s(kRows * shape.heads * shape.key_dim);
    for (int64_t row = 0; row < kRows; ++row)
      fake_quantize_kv_row(shape.format, query_.data() + row * shape.heads * shape.key_dim,
                           int64_t{shape.heads} * shape.key_dim);
    head_weights_ = random.bf16s(kRows * shape.heads);
    const int64_t row_bytes = kv_row_bytes(shape.format, shape.key_dim);
    bytes_.resize(static_cast<size_t>(2 * kMostKeys * row_bytes));
    for (int key = 0; key < 2 * kMostKeys; ++key)
      encode_kv_row(shape.format, random.floats(shape.key_dim).data(), shape.key_dim,
                    bytes_.data() + key * row_bytes);
    for (int row = 0; row < kRows; ++row) {
      const bool is_second = row >= 12;
      rows_.push_back({.keys = bytes_.data() + (is_second ? kMostKeys * row_bytes : 0),
                       .visible = is_second ? (row - 12) * 23 : kMostKeys - 11 + row});
    }
  }

  IndexSelectArgs args(int64_t first, int64_t rows, int top_k, Numerics numerics) const {
    return {.query = query_.data() + first * shape_.heads * shape_.key_dim,
            .head_weights = head_weights_.data() + first * shape_.heads,
            .head_weight_scale = 0.125f,
            .row = rows_.data() + first,
            .rows = rows,
            .heads = shape_.heads,
            .key_dim = shape_.key_dim,
            .key_format = shape_.format,
            .top_k = top_k,
            .selected = nullptr,
            .block_size = 8,
            .max_blocks = 20,
            .allowed_blocks = nullptr,
            .candidate_blocks = nullptr,
            .scores = nullptr,
            .score_stride = 0,
            .numerics = numerics};
  }

  float* query_row(int64_t row) { return query_.data() + row * shape_.heads * shape_.key_dim; }

 private:
  Shape shape_;
  std::vector<float> query_, head_weights_;
  std::vector<std::byte> bytes_;
  std::vector<IndexRow> rows_;
};

constexpr Shape kShapes[] = {
    {4, 32, KvFormat::kFp4Group32}, {3, 64, KvFormat::kFp4Group32}, {2, 10, KvFormat::kF32}};
constexpr Numerics kBoth[] = {Numerics::kExact, Numerics::kOfficial};

TEST(CpuIndexSelect, ScoresMatchTheDefinition) {
  for (const Shape& shape : kShapes) {
    const Keys keys(shape);
    for (Numerics numerics : kBoth) {
      const bool official = numerics == Numerics::kOfficial;
      check_operation("scores", kRows, kMostKeys + 20,
                      [&](Backend& backend, int64_t first, int64_t rows, float* out) {
                        std::vector<int32_t> selected(static_cast<size_t>(rows * 16));
                        IndexSelectArgs args = keys.args(first, rows, 16, numerics);
                        args.selected = selected.data();
                        args.scores = out + first * (kMostKeys + 20);
                        args.score_stride = kMostKeys + 20;
                        backend.index_select(args);
                        // For the norm: what is beyond `visible` must be -inf, and becomes 0 here.
                        for (int64_t r = 0; r < rows; ++r)
                          for (int64_t j = 0; j < kMostKeys + 20; ++j) {
                            float& score = args.scores[r * args.score_stride + j];
                            ASSERT_EQ(std::isinf(score), j >= args.row[r].visible);
                            if (std::isinf(score)) score = 0;
                          }
                      },
                      {.of_norm = official ? 2e-2f : 1e-5f, .flipped_share = official ? 0.01f : 0.0f});
    }
  }
}

// Products of values on the FP4 grid are exact in float32, so that the official scores, and with them the
// ties, are the same in every order of summation.
TEST(CpuIndexSelect, SelectionAndCandidatesAreEqual) {
  const Keys keys(kShapes[0]);
  for (int top_k : {1, 64, 512})
    check_operation("selected", kRows, top_k + 20,
                    [&](Backend& backend, int64_t first, int64_t rows, float* out) {
                      std::vector<int32_t> selected(static_cast<size_t>(rows * top_k));
                      std::vector<int32_t> blocks(static_cast<size_t>(rows * 20));
                      IndexSelectArgs args = keys.args(first, rows, top_k, Numerics::kOfficial);
                      args.selected = selected.data();
                      args.candidate_blocks = blocks.data();
                      backend.index_select(args);
                      for (int64_t r = 0; r < rows; ++r) {
                        float* to =
                            std::copy_n(selected.data() + r * top_k, top_k, out + (first + r) * (top_k + 20));
                        std::copy_n(blocks.data() + r * 20, 20, to);
                      }
                    },
                    {});
}

TEST(CpuIndexSelect, OnlyAllowedBlocksCompete) {
  const Keys keys(kShapes[0]);
  // Every ninth block, and for the short rows a last block that `visible` cuts off.
  std::vector<int32_t> allowed(kRows * 20, -1);
  for (int64_t row = 0; row < kRows; ++row) {
    const int32_t blocks = (keys.args(row, 1, 1, Numerics::kExact).row->visible + 7) / 8;
    int64_t slot = 0;
    for (int32_t block = (blocks - 1) % 9; block < blocks && slot < 20; block += 9)
      if (block >= 0) allowed[static_cast<size_t>(row * 20 + slot++)] = block;
  }
  for (bool with_scores : {false, true})
    for (int top_k : {10, 100})
      check_operation("allowed", kRows, top_k,
                      [&](Backend& backend, int64_t first, int64_t rows, float* out) {
                        std::vector<int32_t> selected(static_cast<size_t>(rows * top_k));
                        std::vector<float> scores(static_cast<size_t>(rows * kMostKeys) + 64 * kRows);
                        IndexSelectArgs args = keys.args(first, rows, top_k, Numerics::kOfficial);
                        args.selected = selected.data();
                        args.allowed_blocks = allowed.data() + first * 20;
                        if (with_scores) args.scores = scores.data();
                        args.score_stride = kMostKeys + 20;
                        backend.index_select(args);
                        std::copy(selected.begin(), selected.end(), out + first * top_k);
                      },
                      {});
}

// A query off the keys' grid takes another path than its neighbours, and must not take them along.
TEST(CpuIndexSelect, QueriesOffTheGridChangeOnlyTheirRow) {
  for (const Shape& shape : {kShapes[0], kShapes[1]}) {
    Keys keys(shape);
    for (const int64_t row : {2, 3, 9}) keys.query_row(row)[5] += 0.01f;
    check_operation("off the grid", kRows, kMostKeys + 20,
                    [&](Backend& backend, int64_t first, int64_t rows, float* out) {
                      std::vector<int32_t> selected(static_cast<size_t>(rows * 16));
                      IndexSelectArgs args = keys.args(first, rows, 16, Numerics::kExact);
                      args.selected = selected.data();
                      args.scores = out + first * (kMostKeys + 20);
                      args.score_stride = kMostKeys + 20;
                      backend.index_select(args);
                      for (int64_t k = 0; k < rows * args.score_stride; ++k)
                        if (std::isinf(args.scores[k])) args.scores[k] = 0;
                    },
                    {.of_norm = 1e-5f});
  }
}

}  // namespace
}  // namespace fathom::cpu_testing
