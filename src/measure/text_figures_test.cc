#include "measure/text_figures.h"

#include <gtest/gtest.h>

#include <numeric>

namespace fathom::measure {
namespace {

TEST(TextFiguresTest, CountsAnEmptyText) {
  for (const char* text : {"", " \n\t ", "\u3000\u00A0\u2028"}) {
    const TextFigures figures = figures_of(text);
    EXPECT_EQ(figures.characters_without_spaces, 0);
    EXPECT_EQ(figures.words, 0);
    EXPECT_EQ(figures.character_grams.grams, 0);
    EXPECT_EQ(figures.character_grams.share(), 0);
    EXPECT_TRUE(figures.character_gram_curve.empty());
    EXPECT_TRUE(figures.distinct_word_curve.empty());
    EXPECT_EQ(figures.last_characters, "");
  }
  EXPECT_EQ(figures_of("").characters, 0);
  EXPECT_EQ(figures_of("\u3000\u00A0\u2028").characters, 3);
}

TEST(TextFiguresTest, CountsRepeatedGramsOfCharactersWithoutSpaces) {
  // abcdefghabcdefgh: 9 grams, of which the last is the first one again.
  const TextFigures figures = figures_of("abcd efgh\nABCDEFGH");
  EXPECT_EQ(figures.characters, 18);
  EXPECT_EQ(figures.characters_without_spaces, 16);
  EXPECT_EQ(figures.character_grams.grams, 9);
  EXPECT_EQ(figures.character_grams.repeated, 1);
  EXPECT_DOUBLE_EQ(figures.character_grams.share(), 1.0 / 9);
  ASSERT_EQ(figures.character_gram_curve.size(), 1u);
  EXPECT_EQ(figures.character_gram_curve[0].repeated, 1);
}

TEST(TextFiguresTest, CountsRepeatedGramsOfWords) {
  // abcd bcda cdab dabc abcd bcdx: one again.
  const TextFigures figures = figures_of("A b c d, a B (c) d! x");
  EXPECT_EQ(figures.words, 9);
  EXPECT_EQ(figures.distinct_words, 5);
  EXPECT_EQ(figures.word_grams.grams, 6);
  EXPECT_EQ(figures.word_grams.repeated, 1);
}

TEST(TextFiguresTest, TakesKoreanWordsBetweenSpacesAndLeavesPunctuationOut) {
  const TextFigures figures = figures_of("“안녕” - 하세요… 안녕, 「안녕」");
  EXPECT_EQ(figures.words, 4);
  EXPECT_EQ(figures.distinct_words, 2);
  EXPECT_EQ(figures.characters, 20);
  EXPECT_EQ(figures.characters_without_spaces, 16);
}

TEST(TextFiguresTest, GivesALoopOfOneCharacterWindowByWindow) {
  const TextFigures figures = figures_of(std::string(2500, 'a'));
  EXPECT_EQ(figures.character_grams.grams, 2493);
  EXPECT_EQ(figures.character_grams.repeated, 2492);
  ASSERT_EQ(figures.character_gram_curve.size(), 3u);
  EXPECT_EQ(figures.character_gram_curve[0].grams, 993);
  EXPECT_EQ(figures.character_gram_curve[0].repeated, 992);
  EXPECT_EQ(figures.character_gram_curve[1].grams, 1000);
  EXPECT_EQ(figures.character_gram_curve[1].share(), 1);
  EXPECT_EQ(figures.character_gram_curve[2].grams, 500);
  EXPECT_EQ(figures.words, 1);
  EXPECT_EQ(figures.word_gram_curve.size(), 3u);
}

TEST(TextFiguresTest, PutsAGramOfWordsIntoTheWindowInWhichItEnds) {
  const TextFigures figures = figures_of("one two three " + std::string(1000, 'x'));
  ASSERT_EQ(figures.word_gram_curve.size(), 2u);
  EXPECT_EQ(figures.word_gram_curve[0].grams, 0);
  EXPECT_EQ(figures.word_gram_curve[1].grams, 1);
}

TEST(TextFiguresTest, CountsDistinctWordsOfWholeWindows) {
  std::string text;
  for (int word = 0; word < 100; ++word) text += "same ";
  for (int word = 0; word < 100; ++word) text += "w" + std::to_string(word % 60) + ' ';
  for (int word = 0; word < 99; ++word) text += "rest ";
  EXPECT_EQ(figures_of(text).distinct_word_curve, (std::vector<int64_t>{1, 60}));
}

TEST(TextFiguresTest, CountsEachByteThatBelongsToNoCharacter) {
  struct Case {
    const char* text;
    int64_t invalid, characters;
  };
  for (const Case& one :
       {Case{"\xFF\xFE", 2, 2}, Case{"\xC0\x80", 2, 2}, Case{"\xED\xA0\x80", 3, 3}, Case{"\xF4\x90\x80\x80", 4, 4},
        Case{"\xE0\x80\x80", 3, 3}, Case{"\xF0\x80\x80\x80", 4, 4}, Case{"a\xEA\xB0", 2, 3}, Case{"\x80z", 1, 2},
        Case{"\xEA\xB0 b", 2, 4}, Case{"\xF0\x9F\x90\xA2", 0, 1}, Case{"\xED\x9F\xBF\xEE\x80\x80", 0, 2}}) {
    const TextFigures figures = figures_of(one.text);
    EXPECT_EQ(figures.invalid_bytes, one.invalid) << one.text;
    EXPECT_EQ(figures.characters, one.characters) << one.text;
    EXPECT_EQ(utf8_of(characters_of(figures.last_characters)), figures.last_characters);
  }
}

TEST(TextFiguresTest, ShowsTheLastTwentyCharactersThatAreNoSpace) {
  EXPECT_EQ(figures_of("그는 우산을 접었다. \n\n").last_characters, "그는우산을접었다.");
  EXPECT_EQ(figures_of("0123456789abcdefghij klm").last_characters, "3456789abcdefghijklm");
}

// Anything that grows with the square of the length would keep this test busy for hours.
TEST(TextFiguresTest, TakesLargeTexts) {
  const TextFigures loop = figures_of(std::string(1'000'000, 'a'));
  EXPECT_EQ(loop.character_grams.repeated, 1'000'000 - 8);
  std::string text;
  for (uint32_t number = 0; text.size() < 1'000'000; ++number) text += std::to_string(number * 2654435761u) + ' ';
  const TextFigures figures = figures_of(text);
  EXPECT_EQ(figures.distinct_words, figures.words);
  EXPECT_EQ(figures.word_grams.repeated, 0);
  EXPECT_EQ(figures.characters_without_spaces + figures.words, figures.characters);
  const std::string spaces = figures_of(std::string(1'000'000, ' ') + "end").last_characters;
  EXPECT_EQ(spaces, "end");
}

TEST(TextFiguresTest, FoldsLatinLettersAndWhiteSpace) {
  EXPECT_EQ(folded("ÀÉ×ß  ŽŸ\n\tİĲ ŁĹŊ 가 Σ"), "àé×ß žÿ iĳ łĺŋ 가 Σ");
}

TEST(TextFiguresTest, FindsStringsButNoPartsOfNumbers) {
  const std::string text = folded("The  key bore the\nnumber 1318, not 42.");
  EXPECT_TRUE(occurs_in(text, "the key"));
  EXPECT_TRUE(occurs_in(text, "THE NUMBER"));
  EXPECT_FALSE(occurs_in(text, "318"));
  EXPECT_FALSE(occurs_in(text, "13"));
  EXPECT_TRUE(occurs_in(text, "1318"));
  EXPECT_TRUE(occurs_in(text, "42"));
  EXPECT_FALSE(occurs_in(text, ""));
  EXPECT_TRUE(occurs_in(folded("1318 and 318"), "318"));
  EXPECT_TRUE(occurs_in(folded("열차 1392호"), "1392"));
}

TEST(TextFiguresTest, FindsLoopsInIds) {
  std::vector<int32_t> ids(100);
  std::iota(ids.begin(), ids.end(), 0);
  EXPECT_FALSE(find_loop(ids, "").report.found);
  for (int copy = 0; copy < 4; ++copy)
    for (int32_t id = 0; id < 20; ++id) ids.push_back(1000 + id);
  const LoopFinding loop = find_loop(ids, "the text is not looked at");
  EXPECT_EQ(loop.basis, LoopBasis::kIds);
  EXPECT_TRUE(loop.report.found);
  EXPECT_EQ(loop.report.period_tokens, 20);
  EXPECT_EQ(loop.report.repeats, 4);
  EXPECT_EQ(loop.report.first_token, 100);
}

TEST(TextFiguresTest, FindsLoopsInCharactersWhereThereAreNoIds) {
  EXPECT_FALSE(find_loop({}, "").report.found);
  EXPECT_FALSE(find_loop({}, std::string(255, '-')).report.found);
  EXPECT_TRUE(find_loop({}, std::string(256, '-')).report.found);
  std::string piece;
  for (int number = 0; piece.size() < 2000; ++number) piece += std::to_string(number * 7919) + ' ';
  const std::string text = "그날 " + piece + piece + piece + piece + "끝";
  const LoopFinding loop = find_loop({}, text);
  EXPECT_EQ(loop.basis, LoopBasis::kCharacters);
  EXPECT_TRUE(loop.report.found);
  EXPECT_EQ(loop.report.period_tokens, static_cast<int32_t>(piece.size()));
  EXPECT_EQ(loop.report.repeats, 4);
  EXPECT_FALSE(find_loop({}, piece + piece + piece).report.found);
}

}  // namespace
}  // namespace fathom::measure
