#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "base/file.h"
#include "text/bpe.h"
#include "text/vocabulary.h"

namespace fathom {
namespace {

using Ids = std::vector<int32_t>;

const Tokenizer& mini() {
  static const Tokenizer tokenizer = Tokenizer::load(FATHOM_SOURCE_DIR "/models/mini/tokenizer.json").value();
  return tokenizer;
}

std::string toy_json() {
  const std::string folder = FATHOM_SOURCE_DIR "/tests/data/golden/g3_candidate_engram";
  return read_text_file(folder + "/tokenizer.json", 1 << 20).value();
}

std::string mini_json() {
  return read_text_file(FATHOM_SOURCE_DIR "/models/mini/tokenizer.json", 1 << 20).value();
}

std::vector<std::string> tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> tokens;
  for (const int32_t id : tokenizer.encode(text)) tokens.emplace_back(tokenizer.token_bytes(id));
  return tokens;
}

TEST(Tokenizer, EncodesWithTheSmallModelsVocabulary) {
  EXPECT_EQ(mini().vocab_size(), 8192);
  EXPECT_EQ(tokens_of(mini(), "The Helium snail screamed."),
            (std::vector<std::string>{"The", " Helium", " snail", " screamed", "."}));
  EXPECT_EQ(tokens_of(mini(), "12345"), (std::vector<std::string>{"123", "45"}));
}

TEST(Tokenizer, EveryByteStringSurvives) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (unsigned length = random() % 80; length > 0; --length)
      text += static_cast<char>(random() % (round % 2 ? 256 : 128));
    EXPECT_EQ(mini().decode(mini().encode(text)), text);
    EXPECT_EQ(mini().decode(mini().encode_with_special(text)), text);
  }
}

TEST(Tokenizer, UserTextNeverBecomesControlTokens) {
  const std::string text = "<｜User｜>hi<think>no</think><｜end▁of▁sentence｜>";
  const Ids plain = mini().encode(text);
  for (const int32_t id : plain) EXPECT_FALSE(mini().is_added(id));
  EXPECT_EQ(mini().decode(plain), text);

  const NamedTokens& named = mini().named();
  const Ids special = mini().encode_with_special(text);
  ASSERT_FALSE(special.empty());
  EXPECT_EQ(special.front(), named.user);
  EXPECT_EQ(special.back(), named.eos);
  EXPECT_EQ(std::count(special.begin(), special.end(), named.think_open), 1);
  EXPECT_EQ(mini().decode(special), text);
}

TEST(Tokenizer, TextBetweenSpecialTokensIsSplitOnItsOwn) {
  const NamedTokens& named = mini().named();
  Ids expected = mini().encode("a ");
  expected.push_back(named.think_open);
  mini().encode_append(" b", expected);
  EXPECT_EQ(mini().encode_with_special("a <think> b"), expected);
  EXPECT_EQ(mini().encode_with_special("<think"), mini().encode("<think"));
  EXPECT_EQ(mini().encode_with_special("<<think>>").size(), 3u);
}

TEST(Tokenizer, NamesAndFlags) {
  const NamedTokens& named = mini().named();
  EXPECT_EQ(named.bos, 0);
  EXPECT_EQ(named.eos, 1);
  EXPECT_EQ(named.pad, 2);
  EXPECT_EQ(named.user, 8155);
  EXPECT_EQ(named.think_close, 8160);
  EXPECT_EQ(named.image, 8168);
  EXPECT_TRUE(mini().is_special(0));
  EXPECT_TRUE(mini().is_added(8155));
  EXPECT_FALSE(mini().is_special(8155));
  EXPECT_FALSE(mini().is_added(100));
  EXPECT_EQ(mini().id_of("<｜User｜>"), 8155);
  EXPECT_EQ(mini().id_of(" Helium"), mini().encode(" Helium")[0]);
  EXPECT_EQ(mini().id_of("no such token at all"), std::nullopt);
  EXPECT_EQ(mini().token_bytes(-1), "");
  EXPECT_EQ(mini().token_bytes(1 << 30), "");
  EXPECT_EQ(mini().decode(Ids{-1, 1 << 30}), "");
}

TEST(Tokenizer, MatchesTheLongestAddedToken) {
  std::string json = toy_json();
  const std::string extra = R"("added_tokens": [{"id": 400, "content": "<a"}, )"
                            R"({"id": 401, "content": "<a><b>"}, {"id": 402, "content": "<a>x"}, )";
  json.replace(json.find("\"added_tokens\": ["), 17, extra);
  const Tokenizer tokenizer = Tokenizer::from_json(json, "test").value();
  const auto with = [&](Ids ids, std::string_view text) {
    tokenizer.encode_append(text, ids);
    return ids;
  };
  EXPECT_EQ(tokenizer.encode_with_special("<a><b>"), Ids{401});
  EXPECT_EQ(tokenizer.encode_with_special("<a><c"), with({400}, "><c"));
  EXPECT_EQ(tokenizer.encode_with_special("<a>x"), Ids{402});
  EXPECT_EQ(tokenizer.encode_with_special("<a<a>x<a><b>"), (Ids{400, 402, 401}));
}

// The short and the long path of the merge step, and a plain scan, must agree.
TEST(Tokenizer, LongPiecesMergeLikeShortOnes) {
  std::array<int32_t, 256> byte_ids;
  for (int byte = 0; byte < 256; ++byte) byte_ids[byte] = byte;
  struct Rule {
    int32_t left, right, merged;
  };
  std::vector<Rule> rules;
  std::mt19937 random(3);
  MergeTable table(byte_ids, 60);
  for (int32_t merged = 256; merged < 316; ++merged) {
    const auto pick = [&] {
      const int32_t any = static_cast<int32_t>(random() % (merged - 256 + 3));
      return any < 3 ? 'a' + any : 256 + any - 3;
    };
    rules.push_back({pick(), pick(), merged});
    table.add(rules.back().left, rules.back().right, merged);
  }
  for (int round = 0; round < 300; ++round) {
    std::string piece;
    for (unsigned length = 1 + random() % 120; length > 0; --length)
      piece += static_cast<char>('a' + random() % 3);
    Ids expected(piece.begin(), piece.end());
    for (bool changed = true; changed;) {
      changed = false;
      for (const Rule& rule : rules) {
        const auto at = std::adjacent_find(expected.begin(), expected.end(), [&](int32_t a, int32_t b) {
          return a == rule.left && b == rule.right;
        });
        if (at == expected.end()) continue;
        *at = rule.merged;
        expected.erase(at + 1);
        changed = true;
        break;
      }
    }
    Ids ids;
    table.encode(piece, ids);
    EXPECT_EQ(ids, expected) << piece;
  }
}

TEST(Tokenizer, ALongRunIsNotQuadratic) {
  const std::string text(1 << 20, 'a');
  const auto start = std::chrono::steady_clock::now();
  const Ids ids = mini().encode(text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));  // quadratic: hours
  EXPECT_EQ(mini().decode(ids), text);
}

TEST(Tokenizer, ThreadsMayShareIt) {
  std::string text;
  for (int line = 0; line < 200; ++line)
    text += "Line " + std::to_string(line * 977) + " of the snail's story.\n";
  const Ids expected = mini().encode(text);
  std::vector<std::thread> threads;
  std::vector<Ids> results(4);
  for (Ids& result : results)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) result = mini().encode(text);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST(Tokenizer, GgufArraysGiveTheSameTokenizer) {
  const RawVocabulary raw = parse_tokenizer_json(mini_json(), "test").value();
  std::vector<std::string> texts(8192), pairs;
  std::vector<int32_t> types(8192, 5);
  for (const auto& token : raw.tokens) {
    texts[token.id] = raw.view(token.spelling);
    types[token.id] = 1;
  }
  for (const auto& token : raw.added) {
    texts[token.id] = token.content;
    types[token.id] = token.special ? 3 : 4;
  }
  for (const auto& merge : raw.merges)
    pairs.push_back(std::string(raw.view(merge.left)) + " " + std::string(raw.view(merge.right)));
  const std::vector<std::string_view> tokens(texts.begin(), texts.end()), merges(pairs.begin(), pairs.end());
  GgufVocabulary vocabulary{.tokens = tokens, .merges = merges, .token_types = types, .pre = "joyai-llm"};
  const Tokenizer tokenizer = Tokenizer::from_gguf(vocabulary, "test").value();
  const std::string text = "<think>안녕하세요, d'été 12345</think>\r\n";
  EXPECT_EQ(tokenizer.encode(text), mini().encode(text));
  EXPECT_EQ(tokenizer.encode_with_special(text), mini().encode_with_special(text));
  for (int32_t id = 0; id < 8192; ++id) {
    EXPECT_EQ(tokenizer.token_bytes(id), mini().token_bytes(id));
    EXPECT_EQ(tokenizer.is_special(id), mini().is_special(id));
  }

  vocabulary.pre = "llama-bpe";
  EXPECT_EQ(Tokenizer::from_gguf(vocabulary, "test").error().code, ErrorCode::kUnsupported);
  vocabulary.pre = "joyai-llm";
  vocabulary.token_types = vocabulary.token_types.first(5);
  EXPECT_EQ(Tokenizer::from_gguf(vocabulary, "test").error().code, ErrorCode::kBadPack);
}

struct Spoiled {
  const char* find;
  const char* replace;
  ErrorCode code;
  const char* message;  // a part of it
};

TEST(Tokenizer, RefusesWhatItDoesNotImplement) {
  ASSERT_TRUE(Tokenizer::from_json(toy_json(), "test").ok());
  const Spoiled cases[] = {
      {"\"BPE\"", "\"Unigram\"", ErrorCode::kUnsupported, "model.type is \"Unigram\""},
      {"{1,3}", "{1,2}", ErrorCode::kUnsupported, "step 0 pattern"},
      {"[A-Za-z]+", "[A-Z]+", ErrorCode::kUnsupported, "step 2 pattern"},
      {"\"Isolated\"", "\"Removed\"", ErrorCode::kUnsupported, "behavior"},
      {"\"use_regex\": true", "\"use_regex\": false", ErrorCode::kUnsupported, "use_regex"},
      {"\"lstrip\": false", "\"lstrip\": true", ErrorCode::kUnsupported, "lstrip"},
      {"\"dropout\": null", "\"dropout\": 0.1", ErrorCode::kUnsupported, "model.dropout is 0.1"},
      {"\"byte_fallback\": false", "\"byte_fallback\": true", ErrorCode::kUnsupported, "byte_fallback"},
      {"\"id\": 1,", "\"id\": -1,", ErrorCode::kBadPack, "lacks an id"},
      {"\"id\": 1,", "\"id\": 2000000000,", ErrorCode::kBadPack, "expected less than 1048576"},
      {"\"id\": 1,", "\"id\": 77,", ErrorCode::kBadPack, "id 77 belongs to"},
      {"\"!\": 3", "\"!\": 4", ErrorCode::kBadPack, "belongs to"},
      {"\"!\": 3", "\"!\": []", ErrorCode::kBadPack, "model.vocab"},
      {"\"!\": 3", "\"!!!\": 3", ErrorCode::kBadPack, "lacks the single byte 0x21"},
      {"\"merges\": [", "\"merges\": [\"zz zz\", ", ErrorCode::kBadPack, "not in the vocabulary"},
      {"\"merges\": [", "\"merges\": [\"a\", ", ErrorCode::kBadPack, "not two tokens"},
      {"\"merges\": [", "\"merges\": [[\"a\"], ", ErrorCode::kBadPack, "fewer than two"},
      {"\"merges\": [", "\"merges\": [[\"a\", \"b\", \"c\"], ", ErrorCode::kBadPack, "more than two"},
      {"\"merges\": [", "\"merges\": [7, ", ErrorCode::kBadPack, "strings or pairs"},
      {"\"added_tokens\": [", "\"added_tokens\": [{\"id\": 500, \"content\": \"\"}, ", ErrorCode::kBadPack,
       "empty"},
      {"\"version\"", "\"version", ErrorCode::kBadPack, "not valid JSON"},
  };
  for (const Spoiled& spoiled : cases) {
    std::string text = toy_json();
    if (text.find(spoiled.find) == std::string::npos) text = mini_json();
    const size_t at = text.find(spoiled.find);
    ASSERT_NE(at, std::string::npos) << spoiled.find;
    text.replace(at, std::string(spoiled.find).size(), spoiled.replace);
    const auto result = Tokenizer::from_json(text, "test");
    ASSERT_FALSE(result.ok()) << spoiled.replace;
    EXPECT_EQ(result.error().code, spoiled.code) << result.error().message;
    EXPECT_NE(result.error().message.find(spoiled.message), std::string::npos) << result.error().message;
    EXPECT_EQ(result.error().message.rfind("test: ", 0), 0u);
  }
}

TEST(Tokenizer, SurvivesHostileJson) {
  for (const char* text : {"", "null", "[]", "{\"model\": 1}", "{\"model\": {\"vocab\": {\"a\": 1", "\xFF"})
    EXPECT_FALSE(Tokenizer::from_json(text, "test").ok());
  for (const std::string& start : {std::string(), std::string("{\"normalizer\": ")}) {
    const std::string deep = start + std::string(200000, '[');
    EXPECT_FALSE(Tokenizer::from_json(deep, "test").ok());
  }
  EXPECT_EQ(Tokenizer::load("/no/such/tokenizer.json").ok(), false);
}

TEST(Tokenizer, MergesMayBePairs) {
  std::string json = toy_json();
  const size_t start = json.find("\"merges\": [") + 11;
  const size_t first_end = json.find('"', start + 1);
  const std::string first = json.substr(start, first_end + 1 - start);
  const size_t space = first.find(' ');
  json.replace(start, first.size(), "[" + first.substr(0, space) + "\", \"" + first.substr(space + 1) + "]");
  const std::string text = "the snail and the other one";
  EXPECT_EQ(Tokenizer::from_json(json, "test").value().encode(text),
            Tokenizer::from_json(toy_json(), "test").value().encode(text));
}

}  // namespace
}  // namespace fathom
