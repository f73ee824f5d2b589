#include "quantize/recipe.h"

#include <gtest/gtest.h>

#include "format/test_files.h"

namespace fathom {
namespace {

const TensorShape kGate{.name = "layers.3.ffn.experts.w1.weight", .rows = 2304, .cols = 5120, .experts = 384};
const TensorShape kQueries{.name = "layers.3.attn.wq_a.weight", .rows = 1280, .cols = 5120};
const TensorShape kNorm{.name = "layers.3.attn_norm.weight", .cols = 5120, .is_vector = true};

std::string refusal(const Result<Recipe>& recipe) { return recipe.ok() ? "" : recipe.error().message; }
std::string refusal(const Result<DType>& type) { return type.ok() ? "" : type.error().message; }

TEST(Recipe, GlobsMatchWholeNames) {
  EXPECT_TRUE(glob_matches("layers.*.attn.*", kQueries.name));
  EXPECT_TRUE(glob_matches("layers.?.attn.wq_a.weight", kQueries.name));
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("*a*b", "xaxxaxb"));
  EXPECT_FALSE(glob_matches("layers.*.attn", kQueries.name));
  EXPECT_FALSE(glob_matches("layers.?.attn.wq_a.weight", "layers.13.attn.wq_a.weight"));
  EXPECT_FALSE(glob_matches("", "a"));
}

TEST(Recipe, TheFirstRuleThatMatchesCounts) {
  const auto recipe = Recipe::parse(
      "# experts of two layers better\n"
      "base q2\n"
      "layers.3.ffn.experts.w1.weight  q4_k   # name in lower case\n"
      "*.experts.*                     Q2_K\n",
      "mine");
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  EXPECT_EQ(*recipe->type_of(kGate, PackDialect::kDs4Gguf), DType::kQ4_K);
  TensorShape other = kGate;
  other.name = "layers.4.ffn.experts.w1.weight";
  EXPECT_EQ(*recipe->type_of(other, PackDialect::kDs4Gguf), DType::kQ2_K);
  EXPECT_EQ(*recipe->type_of(kQueries, PackDialect::kDs4Gguf), DType::kQ8_0);
}

TEST(Recipe, RefusesWhatItDoesNotKnowNamingTheLine) {
  EXPECT_EQ(refusal(Recipe::parse("\n* Q9_K\n", "mine")), "mine:2: unknown type \"Q9_K\"");
  EXPECT_EQ(refusal(Recipe::parse("* Q4_K extra\n", "mine")),
            "mine:1: expected a pattern and a type, found \"* Q4_K extra\"");
  EXPECT_EQ(refusal(Recipe::parse("*\n", "mine")), "mine:1: expected a pattern and a type, found \"*\"");
  EXPECT_EQ(refusal(Recipe::parse("base q3\n", "mine")),
            "mine:1: recipe: expected one of q2, q4, q8, mxfp4, lossless, or a file, found \"q3\"");
  EXPECT_EQ(refusal(Recipe::load("q3")),
            "recipe: expected one of q2, q4, q8, mxfp4, lossless, or a file, found \"q3\"");
  // Readable, but nothing here writes it.
  EXPECT_EQ(refusal(Recipe::parse("* IQ1_S\n", "mine")), "mine:1: unknown type \"IQ1_S\"");
}

TEST(Recipe, ReadsFiles) {
  const TemporaryFolder folder;
  write_bytes(folder.file("r.txt"), "base q4\r\n*.wq_a.weight Q6_K\r\n");
  const auto recipe = Recipe::load(folder.file("r.txt"));
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  EXPECT_EQ(recipe->name(), "r.txt");
  EXPECT_EQ(*recipe->type_of(kQueries, PackDialect::kLlamaCppGguf), DType::kQ6_K);
  EXPECT_EQ(*recipe->type_of(kGate, PackDialect::kLlamaCppGguf), DType::kQ4_K);
}

TEST(Recipe, NarrowRowsFallBackOrAreRefused) {
  TensorShape narrow = kGate;
  narrow.cols = 96;
  std::string note;
  EXPECT_EQ(*Recipe::load("q2")->type_of(narrow, PackDialect::kDs4Gguf, false, &note), DType::kQ8_0);
  EXPECT_EQ(note,
            "layers.3.ffn.experts.w1.weight: Q8_0 instead of IQ2_XXS: rows of 96 are no whole blocks of 256");
  narrow.cols = 40;
  EXPECT_EQ(*Recipe::load("q2")->type_of(narrow, PackDialect::kDs4Gguf), DType::kF16);
  const auto strict = Recipe::parse("*.experts.* Q2_K", "mine");
  EXPECT_EQ(refusal(strict->type_of(narrow, PackDialect::kDs4Gguf)),
            "recipe mine:1: tensor layers.3.ffn.experts.w1.weight: rows of 40 are no whole blocks of 256, "
            "which Q2_K "
            "has");
  const auto lenient = Recipe::parse("*.experts.* Q2_K\nfallback F16", "mine");
  EXPECT_EQ(*lenient->type_of(narrow, PackDialect::kDs4Gguf), DType::kF16);
}

TEST(Recipe, RefusesWhatAContainerCannotStore) {
  const auto recipe =
      Recipe::parse("*norm.weight Q8_0\n*.attn.* Q8_0\n*.experts.* fp8\n*.embed.weight Q4_K", "mine");
  EXPECT_EQ(refusal(recipe->type_of(kNorm, PackDialect::kDs4Gguf)),
            "recipe mine:1: tensor layers.3.attn_norm.weight: Q8_0 cannot be stored in GGUF, ds4 as a vector "
            "(F32, F16 "
            "or BF16 can)");
  EXPECT_EQ(refusal(recipe->type_of(kQueries, PackDialect::kOfficial)),
            "recipe mine:2: tensor layers.3.attn.wq_a.weight: Q8_0 cannot be stored in official safetensors "
            "as a matrix");
  EXPECT_FALSE(recipe->type_of(kGate, PackDialect::kLlamaCppGguf).ok());
  EXPECT_EQ(*recipe->type_of(kGate, PackDialect::kOfficial), DType::kFp8Tile32);
  const TensorShape table{.name = "layers.1.engram.embed.weight", .rows = 9, .cols = 256};
  EXPECT_FALSE(recipe->type_of(table, PackDialect::kDs4Gguf, true).ok());
  EXPECT_EQ(*recipe->type_of(table, PackDialect::kLlamaCppGguf, true), DType::kQ4_K);
}

}  // namespace
}  // namespace fathom
