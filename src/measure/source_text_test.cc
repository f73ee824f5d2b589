#include "measure/source_text.h"

#include <gtest/gtest.h>

#include <memory>

#include "measure/test_folder.h"

namespace fathom::measure {
namespace {

using Tokenizer = std::unique_ptr<fathom_tokenizer, decltype(&fathom_tokenizer_close)>;

Tokenizer mini_tokenizer() {
  fathom_tokenizer* tokenizer = nullptr;
  EXPECT_EQ(fathom_tokenizer_open(FATHOM_SOURCE_DIR "/models/mini", &tokenizer), FATHOM_OK) << fathom_last_error();
  return {tokenizer, fathom_tokenizer_close};
}

TEST(SourceText, TheTextsOfTheProgramAreThere) {
  const Tokenizer tokenizer = mini_tokenizer();
  const Result<SourceText> novel = read_source("novel", tokenizer.get());
  ASSERT_TRUE(novel.ok()) << novel.error().message;
  EXPECT_EQ(novel->text.size(), 1'329'139u);
  EXPECT_EQ(novel->source.name, "novel");
  EXPECT_EQ(novel->ids.front(), fathom_token_id(tokenizer.get(), FATHOM_TOKEN_BOS));
  EXPECT_EQ(novel->source.tokens, static_cast<int64_t>(novel->ids.size()));
  EXPECT_EQ(novel->text_ends.front(), 0u);
  EXPECT_EQ(novel->text_ends.back(), novel->text.size());
  for (const char* name : {"code", "korean"}) EXPECT_TRUE(read_source(name, tokenizer.get()).ok()) << name;
}

TEST(SourceText, PiecesBeginAndEndAtWholeCharactersAndJoinToTheText) {
  const Tokenizer tokenizer = mini_tokenizer();
  const TestFolder folder;
  // The small vocabulary cuts most of these characters into bytes.
  const std::string text = "가나다라 𝔉𝔞𝔱𝔥𝔬𝔪 ñandú 深い海";
  const Result<SourceText> source = read_source(folder.write("deep.sea.txt", text), tokenizer.get());
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->source.name, "deep.sea");
  const int64_t tokens = source->source.tokens;
  std::string joined;
  for (int64_t from = 0; from < tokens; ++from) {
    const std::string_view piece = source->text_between(from, from + 1);
    if (piece.empty()) continue;
    EXPECT_NE(static_cast<unsigned char>(piece.front()) & 0xC0, 0x80) << from;
    joined += piece;
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(source->text_between(0, tokens), text);
}

TEST(SourceText, MissingOnesAreNamed) {
  const Tokenizer tokenizer = mini_tokenizer();
  const Result<SourceText> poems = read_source("poems", tokenizer.get());
  ASSERT_FALSE(poems.ok());
  EXPECT_NE(poems.error().message.find("\"poems\": expected novel, code, korean"), std::string::npos);
  const Result<SourceText> path = read_source("/nowhere/x.txt", tokenizer.get());
  ASSERT_FALSE(path.ok());
  EXPECT_NE(path.error().message.find("/nowhere/x.txt"), std::string::npos);
}

}  // namespace
}  // namespace fathom::measure
