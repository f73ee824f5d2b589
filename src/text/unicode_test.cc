#include "text/unicode.h"

#include <gtest/gtest.h>

#include <string_view>

namespace fathom {
namespace {

TEST(Unicode, ClassesOfCharacters) {
  EXPECT_EQ(char_class(U'a'), kLetter);
  EXPECT_EQ(char_class(U'\u00AA'), kLetter);             // Lo
  EXPECT_EQ(char_class(U'\u02B0'), kLetter);             // Lm
  EXPECT_EQ(char_class(U'\u0301'), kMark);               // Mn
  EXPECT_EQ(char_class(U'\u0903'), kMark);               // Mc
  EXPECT_EQ(char_class(U'\u20DD'), kMark);               // Me
  EXPECT_EQ(char_class(U'\u00BD'), kNumber);             // No
  EXPECT_EQ(char_class(U'\u2160'), kNumber);             // Nl
  EXPECT_EQ(char_class(U'\u0663'), kNumber);             // Nd
  EXPECT_EQ(char_class(U'_'), kPunctuation);             // Pc
  EXPECT_EQ(char_class(U'$'), kSymbol);                  // Sc
  EXPECT_EQ(char_class(U'\U0001F600'), kSymbol);         // So
  EXPECT_EQ(char_class(U'\uFFFD'), kSymbol);
  EXPECT_EQ(char_class(U'\u4E00'), kLetter);             // inside a range of the database
  EXPECT_EQ(char_class(U'\uD7A3'), kLetter);             // its last
  EXPECT_EQ(char_class(U'\U00031350'), kLetter);         // new in Unicode 15
  EXPECT_EQ(char_class(U'\U0001FAE8'), kSymbol);         // new in Unicode 15
  EXPECT_EQ(char_class(U'\uE000'), 0);                   // private use
  EXPECT_EQ(char_class(U'\u200B'), 0);                   // Cf
  EXPECT_EQ(char_class(0x10FFFF), 0);
}

TEST(Unicode, WhiteSpaceIsTheProperty) {
  int count = 0;
  for (char32_t code = 0; code < 0x110000; ++code) count += (char_class(code) & kWhiteSpace) != 0;
  EXPECT_EQ(count, 25);
  for (const char32_t code :
       std::u32string_view(U"\t\n\v\f\r \u0085\u00A0\u1680\u2000\u200A\u2028\u202F\u3000"))
    EXPECT_TRUE(char_class(code) & kWhiteSpace) << std::hex << static_cast<uint32_t>(code);
  for (const char32_t code : {0xFEFF, 0x1C, 0x1F, 0x180E, 0x200B})
    EXPECT_FALSE(char_class(code) & kWhiteSpace) << std::hex << static_cast<uint32_t>(code);
}

TEST(Unicode, LowerCase) {
  EXPECT_EQ(to_lower(U'A'), U'a');
  EXPECT_EQ(to_lower(U'['), U'[');
  EXPECT_EQ(to_lower(U'\u00C9'), U'\u00E9');
  EXPECT_EQ(to_lower(U'\u03A3'), U'\u03C3');
  EXPECT_EQ(to_lower(U'\u1E9E'), U'\u00DF');
  EXPECT_EQ(to_lower(U'\U00010400'), U'\U00010428');
  EXPECT_EQ(to_lower(U'\u00DF'), U'\u00DF');
}

TEST(Unicode, Normalisation) {
  EXPECT_EQ(normalize_nfd(U"\u00E9"), U"e\u0301");
  EXPECT_EQ(normalize_nfd(U"\uAC01"), U"\u1100\u1161\u11A8");
  EXPECT_EQ(normalize_nfd(U"\uAC00"), U"\u1100\u1161");
  EXPECT_EQ(normalize_nfd(U"\u1E69"), U"s\u0323\u0307");                  // recursive
  EXPECT_EQ(normalize_nfd(U"s\u0307\u0323"), U"s\u0323\u0307");           // reordered
  EXPECT_EQ(normalize_nfd(U"\uFB01"), U"\uFB01");                         // compatibility only
  EXPECT_EQ(normalize_nfkc(U"\uFB01"), U"fi");
  EXPECT_EQ(normalize_nfkc(U"s\u0307\u0323"), U"\u1E69");
  EXPECT_EQ(normalize_nfkc(U"\u1100\u1161\u11A8"), U"\uAC01");
  EXPECT_EQ(normalize_nfkc(U"\u212B"), U"\u00C5");                        // singleton
  EXPECT_EQ(normalize_nfkc(U"\u0958"), U"\u0915\u093C");                  // composition exclusion
  EXPECT_EQ(normalize_nfkc(U"a\u0315\u0301"), U"\u00E1\u0315");           // over a mark of another class
  EXPECT_EQ(normalize_nfkc(U"\uFF21\u00A0\u2075"), U"A 5");
  EXPECT_EQ(normalize_nfkc(U"\uFDFA").size(), 18u);                       // the longest
  // A starter behind a mark is blocked.
  EXPECT_EQ(normalize_nfkc(U"\u09C7\u0334\u09BE"), U"\u09C7\u0334\u09BE");
}

}  // namespace
}  // namespace fathom
