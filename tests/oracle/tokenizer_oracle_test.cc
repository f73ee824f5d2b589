// Compares the tokenizer with what tokenizer_oracle.mjs wrote into the folder $FATHOM_ORACLE.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/file.h"
#include "base/sha256.h"
#include "text/engram_map.h"
#include "text/tokenizer.h"

namespace fathom {
namespace {

using Ids = std::vector<int32_t>;

std::string folder() {
  const char* path = std::getenv("FATHOM_ORACLE");
  return path ? path : ".";
}

const Tokenizer& tokenizer() {
  static const Tokenizer loaded = Tokenizer::load(folder() + "/tokenizer.json").value();
  return loaded;
}

struct Record {
  std::string text;
  Ids ids;
};

std::vector<Record> read_records(const std::string& name) {
  const std::string file = read_text_file(folder() + "/" + name, uint64_t{1} << 30).value();
  std::vector<Record> records;
  size_t position = 0;
  const auto read_count = [&] {
    uint32_t count;
    std::memcpy(&count, file.data() + position, sizeof count);
    position += sizeof count;
    return count;
  };
  while (position < file.size()) {
    Record record;
    const uint32_t length = read_count();
    record.text = file.substr(position, length);
    position += length;
    record.ids.resize(read_count());
    std::memcpy(record.ids.data(), file.data() + position, record.ids.size() * sizeof(int32_t));
    position += record.ids.size() * sizeof(int32_t);
    records.push_back(std::move(record));
  }
  return records;
}

template <class Encode>
void compare(const std::string& name, size_t texts_min, Encode encode) {
  const std::vector<Record> records = read_records(name);
  EXPECT_GE(records.size(), texts_min);
  int different = 0;
  for (const Record& record : records) {
    const Ids ids = encode(record.text);
    EXPECT_EQ(tokenizer().decode(ids), record.text);
    if (ids == record.ids) continue;
    if (++different <= 5) {
      EXPECT_EQ(ids, record.ids) << testing::PrintToString(record.text);
    }
  }
  EXPECT_EQ(different, 0) << "of " << records.size() << " texts";
}

TEST(TokenizerOracle, PlainTexts) {
  compare("plain.bin", 20000, [](const std::string& text) { return tokenizer().encode(text); });
}

TEST(TokenizerOracle, TextsWithAddedTokens) {
  compare("special.bin", 3000, [](const std::string& text) { return tokenizer().encode_with_special(text); });
}

TEST(TokenizerOracle, PublishedVectors) {
  const Record vectors[] = {
      {"Hello, world!", {19923, 14, 2058, 3}},
      {"don't", {20385, 1664}},
      {"12345", {6895, 1883}},
      {"1000000", {1457, 1320, 18}},
      {" 3.14", {223, 21, 16, 929}},
      {"rfid501.go", {35305, 329, 19097, 68082}},
      {"d'été", {70, 9, 33086}},
      {"(état)", {10, 83792, 11}},
      {"un'abilità", {371, 9, 32174, 3221}},
      {"안녕하세요", {31404, 11939, 246, 4567, 73527}},
      {"你好，世界", {30594, 303, 3427}},
      {"カタカナと漢字", {15961, 11767, 15961, 27071, 2495, 29069, 2024}},
      {"C++ & C#", {37, 3312, 1051, 345, 5}},
      {"'ll", {5922}},
      {"$x$", {120754, 6}},
      {"#include <stdio.h>", {6201, 818, 21968, 5196, 32}},
      {"\r\n\r\n", {204, 201, 204, 201}},
      {"\t\tif x:", {200, 5733, 1527, 28}},
      {"  \n\n  a", {6776, 223, 260}},
      {"🙂🙂", {80300, 227, 80300, 227}},
      {"e\u0301t", {71, 17793, 86}},
      {"a\u200Bb", {67, 35020, 68}},
      {"ﬁn", {14324, 80}},
      {"١٢٣٤", {63468, 76647, 127056, 152, 100}},
      {"<think>", {30, 37947, 32}},
      {"<｜User｜>", {30, 28217, 6756, 28217, 32}},
      {"｜DSML｜", {28217, 10525, 7398, 28217}},
  };
  for (const Record& vector : vectors) EXPECT_EQ(tokenizer().encode(vector.text), vector.ids) << vector.text;
}

TEST(TokenizerOracle, NamedTokens) {
  const NamedTokens& named = tokenizer().named();
  EXPECT_EQ(tokenizer().vocab_size(), 129280);
  EXPECT_EQ((Ids{named.bos, named.eos, named.pad, named.system, named.user, named.assistant,
                 named.latest_reminder}),
            (Ids{0, 1, 2, 128799, 128803, 128804, 128828}));
  EXPECT_EQ((Ids{named.think_open, named.think_close, named.dsml, named.image, named.end_of_turn}),
            (Ids{128821, 128822, 128825, 129264, 128805}));
  EXPECT_EQ((Ids{named.fim_hole, named.fim_begin, named.fim_end}), (Ids{128800, 128801, 128802}));
  int added = 0, special = 0;
  for (int32_t id = 0; id < tokenizer().vocab_size(); ++id) {
    added += tokenizer().is_added(id);
    special += tokenizer().is_special(id);
  }
  EXPECT_EQ(added, 1283);
  EXPECT_EQ(special, 1229);
}

TEST(TokenizerOracle, EngramTokenMap) {
  const EngramTokenMap map = build_engram_token_map(tokenizer(), 129280);
  EXPECT_EQ(map.compressed_vocab_size, 99092);
  EXPECT_EQ(map.ids[2], 2);
  EXPECT_EQ(map.ids[100], 74);
  EXPECT_EQ(map.ids[1000], 604);
  EXPECT_EQ(*std::max_element(map.ids.begin(), map.ids.begin() + 128000), 97811);
  EXPECT_EQ(hex_string(sha256(std::as_bytes(std::span(map.ids)))),
            "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481");
  const std::vector<int64_t> wide(map.ids.begin(), map.ids.end());
  EXPECT_EQ(hex_string(sha256(std::as_bytes(std::span(wide)))),
            "26b9be2936d236a124ba318a998c417bc7032e3e92a3107fe98deee49f1dc496");
}

}  // namespace
}  // namespace fathom
