#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace fathom {
namespace {

constexpr const char* kBad = "\xEF\xBF\xBD";

TEST(Utf8, ReplacesMaximalSubparts) {
  const std::string bad = kBad;
  EXPECT_EQ(replace_invalid_utf8("aé€😀"), "aé€😀");
  EXPECT_EQ(replace_invalid_utf8("a\x80z"), "a" + bad + "z");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), bad + bad);                    // overlong
  EXPECT_EQ(replace_invalid_utf8("\xE0\x80\xAF"), bad + bad + bad);          // overlong
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), bad + bad + bad);          // surrogate
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), bad + bad + bad + bad);  // above U+10FFFF
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82z"), bad + "z");                   // one for a cut character
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), bad);
  EXPECT_EQ(replace_invalid_utf8("\xF1\x80\x80\xE1\x80\xC2"), bad + bad + bad);
}

TEST(Utf8, TellsInvalidFromTruncated) {
  EXPECT_EQ(decode_utf8("\xE2\x82", 0).status, Utf8Status::kTruncated);
  EXPECT_EQ(decode_utf8("\xE2\x28", 0).status, Utf8Status::kInvalid);
  EXPECT_EQ(decode_utf8("\xED\xA0", 0).status, Utf8Status::kInvalid);
  const Utf8Char last = decode_utf8("\xF4\x8F\xBF\xBF", 0);
  EXPECT_EQ(last.code, 0x10FFFFu);
  EXPECT_EQ(last.length_bytes, 4);
}

TEST(Utf8, EncodesWhatItDecodes) {
  for (char32_t code : {0x0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF}) {
    std::string text;
    append_utf8(code, text);
    EXPECT_EQ(decode_utf8(text, 0).code, code);
    EXPECT_EQ(decode_utf8(text, 0).length_bytes, text.size());
    EXPECT_TRUE(is_valid_utf8(text));
  }
}

TEST(Utf8Holder, GivesTheSameTextForEveryCut) {
  std::mt19937 random(7);
  const std::string_view parts[] = {"a",    "\xC3\xA9", "\xED\x95\x9C", "\xF0\x9F\x98\x80", "\xF0\x9F",
                                    "\x80", "\xE2\x82", "\xFF",         "\n",               "\xED\xA0"};
  for (int round = 0; round < 2000; ++round) {
    std::string stream;
    for (unsigned count = random() % 9; count > 0; --count) stream += parts[random() % std::size(parts)];
    Utf8Holder holder;
    std::string out;
    for (size_t position = 0; position < stream.size();) {
      const size_t length = 1 + random() % 4;
      const std::string piece = holder.push(std::string_view(stream).substr(position, length));
      EXPECT_TRUE(is_valid_utf8(piece));
      EXPECT_LE(holder.pending_bytes(), 3u);
      out += piece;
      position += length;
    }
    out += holder.flush();
    EXPECT_EQ(out, replace_invalid_utf8(stream));
    EXPECT_EQ(holder.flush(), "");
  }
}

TEST(Utf8Holder, HoldsHalfACharacterBack) {
  Utf8Holder holder;
  EXPECT_EQ(holder.push("x\xED\x95"), "x");
  EXPECT_EQ(holder.push("\x9C!"), "\xED\x95\x9C!");
  EXPECT_EQ(holder.push("\xF0\x9F\x98"), "");
  EXPECT_EQ(holder.flush(), kBad);
}

}  // namespace
}  // namespace fathom
