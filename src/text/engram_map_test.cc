#include "text/engram_map.h"

#include <gtest/gtest.h>

#include <cstring>

#include "format/safetensors.h"

namespace fathom {
namespace {

TEST(EngramMap, Normalisation) {
  EXPECT_EQ(normalize_for_engram(" Hello"), "hello");
  EXPECT_EQ(normalize_for_engram("Été"), "ete");
  EXPECT_EQ(normalize_for_engram("ﬁ"), "fi");
  EXPECT_EQ(normalize_for_engram("का"), "क");             // a spacing mark goes too
  EXPECT_EQ(normalize_for_engram("각"), "\u1100\u1161\u11A8");  // stays decomposed
  EXPECT_EQ(normalize_for_engram("\n\n\t"), " ");         // a lone run stays as one space
  EXPECT_EQ(normalize_for_engram("a \r\n b"), "a b");
  EXPECT_EQ(normalize_for_engram("\u00A0"), " ");         // NFKC makes it a space
  EXPECT_EQ(normalize_for_engram("\u0085x\u0085"), "x");
  EXPECT_EQ(normalize_for_engram("\x1Cx\x1C"), "\x1Cx\x1C");
  EXPECT_EQ(normalize_for_engram("\u0301"), "");
  EXPECT_EQ(normalize_for_engram("İ"), "i");
}

TEST(EngramMap, MatchesTheGoldenToyMap) {
  const std::string folder = FATHOM_SOURCE_DIR "/tests/data/golden/g3_candidate_engram/";
  const Tokenizer tokenizer = Tokenizer::load(folder + "tokenizer.json").value();
  const TensorFiles golden = open_safetensors(folder + "golden.safetensors").value();
  const TensorEntry* tensor = golden.find("inputs/engram_token_map");
  ASSERT_NE(tensor, nullptr);
  std::vector<int32_t> expected(tensor->size_bytes / sizeof(int32_t));
  std::memcpy(expected.data(), tensor->data, tensor->size_bytes);
  const EngramTokenMap map = build_engram_token_map(tokenizer, 320);
  EXPECT_EQ(map.ids, expected);
  EXPECT_EQ(map.compressed_vocab_size, 253);
}

TEST(EngramMap, GivesTheCompressedVocabularyOfTheSmallModel) {
  const Tokenizer tokenizer = Tokenizer::load(FATHOM_SOURCE_DIR "/models/mini/tokenizer.json").value();
  const EngramTokenMap map = build_engram_token_map(tokenizer, 8192);
  EXPECT_EQ(map.ids.size(), 8192u);
  EXPECT_EQ(map.compressed_vocab_size, 6553);
}

}  // namespace
}  // namespace fathom
