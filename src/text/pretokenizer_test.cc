#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fathom {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view text, SplitRules rules = SplitRules::kDeepseek) {
  Pieces pieces;
  PieceSplitter splitter(text, rules);
  for (std::string_view piece = splitter.next(); !piece.empty(); piece = splitter.next())
    pieces.emplace_back(piece);
  return pieces;
}

TEST(Pretokenizer, Words) {
  EXPECT_EQ(split(""), Pieces{});
  EXPECT_EQ(split("Hello, world!"), (Pieces{"Hello", ",", " world", "!"}));
  EXPECT_EQ(split("don't"), (Pieces{"don", "'t"}));
  EXPECT_EQ(split("\tx\u00A0y"), (Pieces{"\tx", "\u00A0y"}));
  EXPECT_EQ(split("e\u0301te\u0301"), (Pieces{"e\u0301te\u0301"}));
  EXPECT_EQ(split("\u0301"), (Pieces{"\u0301"}));
}

// Only ASCII letters join a sign; an accented letter ends the join.
TEST(Pretokenizer, ApostropheBeforeAccentedLetters) {
  EXPECT_EQ(split("d'été"), (Pieces{"d", "'", "été"}));
  EXPECT_EQ(split("un'abilità"), (Pieces{"un", "'abilit", "à"}));
  EXPECT_EQ(split("(état)"), (Pieces{"(", "état", ")"}));
  EXPECT_EQ(split("«Bonjour"), (Pieces{"«", "Bonjour"}));
}

TEST(Pretokenizer, Numbers) {
  EXPECT_EQ(split("1000000"), (Pieces{"100", "000", "0"}));
  EXPECT_EQ(split(" 3.14"), (Pieces{" ", "3", ".", "14"}));
  EXPECT_EQ(split("rfid501.go"), (Pieces{"rfid", "501", ".go"}));
  EXPECT_EQ(split("½Ⅷ٣4"), (Pieces{"½Ⅷ٣", "4"}));
  EXPECT_EQ(split("a  1"), (Pieces{"a", "  ", "1"}));  // the number's cut ends the run of spaces
}

TEST(Pretokenizer, CjkRuns) {
  EXPECT_EQ(split("日本語カナ"), (Pieces{"日本語カナ"}));
  EXPECT_EQ(split("a日b"), (Pieces{"a", "日", "b"}));
  EXPECT_EQ(split(" 日"), (Pieces{" ", "日"}));
  EXPECT_EQ(split("ア・イ"), (Pieces{"ア", "・", "イ"}));  // U+30FB is in the run and a sign
  EXPECT_EQ(split("ア\u3097イ"), (Pieces{"ア", "\u3097イ"}));  // unassigned, in the run
  EXPECT_EQ(split("龥龦"), (Pieces{"龥", "龦"}));          // the run ends at U+9FA5
}

TEST(Pretokenizer, SignsAndLineBreaks) {
  EXPECT_EQ(split("C++ & C#"), (Pieces{"C", "++", " &", " C", "#"}));
  EXPECT_EQ(split("a);\r\n\r\nb"), (Pieces{"a", ");\r\n\r\n", "b"}));
  EXPECT_EQ(split("+=x"), (Pieces{"+=", "x"}));
  EXPECT_EQ(split("=x"), (Pieces{"=x"}));
  EXPECT_EQ(split(" =x"), (Pieces{" =", "x"}));
  EXPECT_EQ(split(" …\n"), (Pieces{" …\n"}));
}

TEST(Pretokenizer, WhiteSpace) {
  EXPECT_EQ(split("  \n\n  a"), (Pieces{"  \n\n", " ", " a"}));
  EXPECT_EQ(split("   a"), (Pieces{"  ", " a"}));
  EXPECT_EQ(split("   "), (Pieces{"   "}));
  EXPECT_EQ(split("a \n"), (Pieces{"a", " \n"}));
  EXPECT_EQ(split("\n a"), (Pieces{"\n", " a"}));
  EXPECT_EQ(split("\t\tif"), (Pieces{"\t", "\tif"}));
  EXPECT_EQ(split(" \u3000a"), (Pieces{" ", "\u3000a"}));
  EXPECT_EQ(split("\u0085\u0085"), (Pieces{"\u0085\u0085"}));   // white space
  EXPECT_EQ(split("\uFEFF\uFEFF"), (Pieces{"\uFEFF\uFEFF"}));   // not: a gap
}

TEST(Pretokenizer, GapsEndWhereAMatchStarts) {
  EXPECT_EQ(split("\x01\x02\x03"), (Pieces{"\x01\x02\x03"}));
  EXPECT_EQ(split("\x01\x02" "a"), (Pieces{"\x01", "\x02" "a"}));
  EXPECT_EQ(split("\x01\x02 \x03"), (Pieces{"\x01\x02", " ", "\x03"}));
  EXPECT_EQ(split("\x01+"), (Pieces{"\x01", "+"}));
  EXPECT_EQ(split("\x01日"), (Pieces{"\x01", "日"}));
  EXPECT_EQ(split("\u200Bb"), (Pieces{"\u200Bb"}));
}

TEST(Pretokenizer, Gpt2Rules) {
  const auto gpt2 = [](std::string_view text) { return split(text, SplitRules::kGpt2); };
  EXPECT_EQ(gpt2("they'll don't 'x"), (Pieces{"they", "'ll", " don", "'t", " '", "x"}));
  EXPECT_EQ(gpt2("a1000 été+=\r\n"), (Pieces{"a", "1000", " été", "+=", "\r\n"}));
  EXPECT_EQ(gpt2("  \n  x  "), (Pieces{"  \n ", " x", "  "}));
  EXPECT_EQ(gpt2("\t\tx"), (Pieces{"\t", "\t", "x"}));
}

TEST(Pretokenizer, BrokenBytesSplitLikeTheirReplacement) {
  EXPECT_EQ(split("a\xFF b"), (Pieces{"a", "\xFF", " b"}));
  EXPECT_EQ(split("\xF0\x9F" "abc"), (Pieces{"\xF0\x9F", "abc"}));
  EXPECT_EQ(split(" \xE2\x82\xFF\n"), (Pieces{" \xE2\x82\xFF\n"}));
  EXPECT_EQ(split("\xE2"), (Pieces{"\xE2"}));
}

}  // namespace
}  // namespace fathom
