#include "model/tensor_shapes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/pack_names.h"
#include "model/test_packs.h"

namespace fathom {
namespace {

// A pack refuses a matrix asked for with another shape, so opening everything checks every number.
void open_all(const Pack& pack, const std::vector<TensorShape>& shapes) {
  for (const TensorShape& shape : shapes) {
    if (shape.name.ends_with("gate.bias_vl") && !pack.has_tensor(shape.name)) continue;
    if (shape.is_vector) {
      const auto values = pack.vector(shape.name, shape.rows * shape.cols);
      EXPECT_TRUE(values.ok()) << values.error().message;
      continue;
    }
    if (shape.experts == 0) {
      const auto matrix = pack.matrix(shape.name, shape.rows, shape.cols);
      EXPECT_TRUE(matrix.ok()) << matrix.error().message;
      continue;
    }
    const std::string block = shape.name.substr(0, shape.name.find(".ffn."));
    const std::string which = shape.name.substr(shape.name.find(".w") + 1, 2);
    for (const int64_t expert : {int64_t{0}, shape.experts - 1}) {
      const auto matrix = pack.expert_matrix(block, expert, which, shape.rows, shape.cols);
      EXPECT_TRUE(matrix.ok()) << matrix.error().message;
    }
  }
}

TEST(TensorShapes, AreThoseOfTheFiles) {
  for (const char* model : {"g1_dense_short", "g3_candidate_engram", "g4_k256_dspark"}) {
    SCOPED_TRACE(model);
    const auto pack = open_pack(golden_folder(model));
    ASSERT_TRUE(pack.ok()) << pack.error().message;
    const std::vector<TensorShape> shapes = backbone_shapes(pack->config());
    EXPECT_EQ(std::count_if(shapes.begin(), shapes.end(), [](const TensorShape& s) { return s.experts > 0; }),
              3 * pack->config().num_layers);
    open_all(*pack, shapes);
    if (pack->audit().has_draft) open_all(*pack, draft_shapes(pack->config()));
  }
}

TEST(TensorShapes, NamesGoToGgufAndBack) {
  const auto pack = open_pack(golden_folder("g4_k256_dspark"));
  ASSERT_TRUE(pack.ok()) << pack.error().message;
  std::vector<TensorShape> shapes = backbone_shapes(pack->config());
  const std::vector<TensorShape> draft = draft_shapes(pack->config());
  shapes.insert(shapes.end(), draft.begin(), draft.end());
  for (const TensorShape& shape : shapes)
    for (const GgufNames names : {GgufNames::kDs4, GgufNames::kLlamaCpp})
      EXPECT_EQ(official_from_gguf(gguf_from_official(shape.name, names)), shape.name);
  EXPECT_EQ(gguf_from_official("layers.1.engram.wkv.weight", GgufNames::kDs4), "blk.1.engram_kv.weight");
  EXPECT_EQ(gguf_from_official("layers.1.engram.wkv.weight", GgufNames::kLlamaCpp),
            "blk.1.engram_wkv.weight");
  EXPECT_EQ(gguf_from_official("layers.3.ffn.gate.bias", GgufNames::kDs4), "blk.3.exp_probs_b.bias");
  EXPECT_EQ(gguf_from_official("layers.3.ffn.gate.colour", GgufNames::kDs4), "");
}

}  // namespace
}  // namespace fathom
