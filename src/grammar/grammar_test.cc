#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include "grammar/gbnf.h"
#include "grammar/test_walks.h"

namespace fathom {
namespace {

std::shared_ptr<const Grammar> compile(std::string_view text) {
  auto grammar = compile_gbnf(text, test_vocabulary());
  EXPECT_TRUE(grammar.ok()) << text << "\n" << (grammar.ok() ? "" : grammar.error().message);
  return grammar.ok() ? *grammar : nullptr;
}

std::string refusal(std::string_view text) {
  auto grammar = compile_gbnf(text, test_vocabulary());
  if (grammar.ok()) return "accepted";
  EXPECT_EQ(grammar.error().code, ErrorCode::kInvalidArgument);
  return grammar.error().message;
}

void check(std::string_view text, const std::vector<std::string>& good, const std::vector<std::string>& bad) {
  const auto grammar = compile(text);
  ASSERT_NE(grammar, nullptr);
  for (const std::string& one : good) EXPECT_TRUE(takes(*grammar, one)) << text << "\n" << one;
  for (const std::string& one : bad) EXPECT_FALSE(takes(*grammar, one)) << text << "\n" << one;
}

TEST(Grammar, Notation) {
  check("root ::= \"a\" | \"b\" # one\n", {"a", "b"}, {"", "ab", "c"});
  check("# first\n\nroot ::= x\n  \nx ::= (\n \"a\"\n # inside\n | \"b\"\n) \"c\" |\n \"d\"",
        {"ac", "bc", "d"}, {"a", "dc"});
  check("root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2} \"d\"?", {"aab", "aabbcc", "aabd"},
        {"ab", "aaccb", "aabccc"});
  check("root ::= [a-c\\]x-]+ [^a-z\\n]", {"a]-xX", "c\xC3\xA9"}, {"ax", "a\n", "X"});
  check("root ::= \"\\n\\t\\\"\\\\\\x41\\u00e9\\U0001F600\"", {"\n\t\"\\A\xC3\xA9\xF0\x9F\x98\x80"}, {"n"});
  check("root ::= [\xE3\x81\x81-\xE3\x82\x9F]*", {"", "\xE3\x81\x82\xE3\x82\x9F"},
        {"\xE3\x82\xA0", "\xE3\x81"});
  check("root ::= . .", {"ab", "\n\xF0\x9F\x98\x80"},
        {"a", "abc",
         "\xFF"
         "a",
         "\xED\xA0\x80"
         "a",
         "\xC0\x80"
         "a"});
  check("root ::= | \"a\"", {"", "a"}, {"b"});
  check("root ::= \"\"", {""}, {"a"});
  check("root::=a-b_C1\r\na-b_C1::=\"x\"\r\n", {"x"}, {""});
  check("root ::= ((\"a\" \"b\" *) ?) {2,3}", {"", "a", "abba"}, {"b", "aaaa"});
}

TEST(Grammar, Mistakes) {
  EXPECT_NE(refusal("root ::= \"a\"\nx ::= \"b").find("line 2, column 7"), std::string::npos)
      << refusal("root ::= \"a\"\nx ::= \"b");
  EXPECT_NE(refusal("root ::= x y\nx ::= \"\"").find("line 1, column 12: the rule \"y\" is not defined"),
            std::string::npos);
  EXPECT_NE(refusal("x ::= \"a\"").find("root"), std::string::npos);
  EXPECT_NE(refusal("root ::= \"a\"\nroot ::= \"b\"").find("line 2, column 1"), std::string::npos);
  EXPECT_NE(refusal("root ::= \"\\q\"").find("line 1, column 11"), std::string::npos)
      << refusal("root ::= \"\\q\"");
  for (const char* bad : {"",
                          "root",
                          "root =",
                          "root ::= [",
                          "root ::= []",
                          "root ::= [b-a]",
                          "root ::= (",
                          "root ::= )",
                          "root ::= \"a\"{",
                          "root ::= \"a\"{2,1}",
                          "root ::= \"a\"{99999}",
                          "root ::= \"a\"**",
                          "root ::= *",
                          "root ::= \"\\ud800\"",
                          "root ::= \"\\U00110000\"",
                          "root ::= \"\\x4\"",
                          "root ::= [\\ud800-\\udfff]",
                          "root ::= <think>",
                          "root ::= !x",
                          "root ::= <[1]",
                          "root ::= <[99999]>",
                          "root ::= <[256]>",
                          "root ::= [\xFF]",
                          "root ::= \"a\" $"})
    EXPECT_NE(refusal(bad), "accepted") << bad;
  EXPECT_NE(refusal("root ::= root \"a\" | \"b\"").find("left recursion"), std::string::npos);
  EXPECT_NE(refusal("root ::= x\nx ::= \"a\"? y\ny ::= \"\" x | \"b\"").find("left recursion"),
            std::string::npos);
  EXPECT_NE(refusal("root ::= \"a\" root").find("matches nothing"), std::string::npos);
}

TEST(Grammar, LiteralsQuoteAnything) {
  std::string bytes;
  for (int byte = 255; byte >= 0; --byte) bytes += static_cast<char>(byte);
  check("root ::= " + gbnf_literal(bytes), {bytes}, {bytes + "x"});
  check("root ::= " + gbnf_literal("") + " " + gbnf_literal("\xFF\xC3"), {"\xFF\xC3"}, {"", "\xFF"});
}

TEST(Grammar, TokensEndInsideOfCharactersAndTerminals) {
  const auto find = [](std::string_view token) {
    for (int32_t k = 0; k < static_cast<int32_t>(std::size(kTestTokens)); ++k)
      if (kTestTokens[k] == token) return kTestEnd + 1 + k;
    return -1;
  };
  const auto grammar = compile("root ::= \"x\" [^a-z\"]* \"\\\"\" \"}\"");
  const auto mask = grammar->new_mask();
  mask->accept('x');
  EXPECT_TRUE(allows(*mask, find("\xE6\x97")));  // two of three bytes
  EXPECT_FALSE(allows(*mask, find("\xA5\"")));   // a last byte without its first ones
  EXPECT_TRUE(allows(*mask, find("\"}")));
  EXPECT_FALSE(allows(*mask, find("\",")));
  mask->accept(find("\xE6\x97"));
  EXPECT_TRUE(allows(*mask, find("\xA5\"")));
  EXPECT_FALSE(allows(*mask, find("\"}")));
  EXPECT_FALSE(allows(*mask, kTestEnd));
  mask->accept(find("\xA5\""));
  EXPECT_EQ(allowed_ids(*mask), std::vector<int32_t>{'}'});
  mask->accept('}');
  EXPECT_EQ(allowed_ids(*mask), std::vector<int32_t>{kTestEnd});
  mask->accept(kTestEnd);
  EXPECT_EQ(allowed_ids(*mask), std::vector<int32_t>{kTestEnd});
}

TEST(Grammar, AfterATokenThatIsNotAllowedOnlyTheEndIs) {
  const auto grammar = compile("root ::= \"ab\"*");
  for (const int32_t wrong : {int32_t{'b'}, int32_t{-1}, int32_t{1 << 20}}) {
    const auto mask = grammar->new_mask();
    mask->accept(wrong);
    EXPECT_EQ(allowed_ids(*mask), std::vector<int32_t>{kTestEnd});
    mask->accept('a');
    EXPECT_EQ(allowed_ids(*mask), std::vector<int32_t>{kTestEnd});
  }
}

TEST(Grammar, VocabularyThatCannotSpellIt) {
  const auto small = GrammarVocabulary::make({"", "a", "ab"}, {0});
  auto grammar = compile_gbnf("root ::= \"abb\"", small);
  ASSERT_TRUE(grammar.ok());
  const auto mask = (*grammar)->new_mask();
  std::vector<uint64_t> bits = {~uint64_t{0}};
  mask->restrict(bits);
  EXPECT_EQ(bits[0], 0b110u);
  mask->accept(2);
  bits = {~uint64_t{0}};
  mask->restrict(bits);
  EXPECT_EQ(bits[0], 0b001u);
}

TEST(Grammar, MasksArePutOnOneAnother) {
  const auto grammar = compile("root ::= [ab]");
  const auto mask = grammar->new_mask();
  std::vector<uint64_t> bits((static_cast<size_t>(test_vocabulary()->size()) + 63) / 64);
  bits['b' / 64] = uint64_t{1} << ('b' % 64) | uint64_t{1} << ('c' % 64);
  mask->restrict(bits);
  EXPECT_EQ(bits['b' / 64], uint64_t{1} << ('b' % 64));
}

TEST(Grammar, NestsAsDeepAsTheAnswerIs) {
  const auto grammar = compile("root ::= \"[\" root? \"]\" | \"(\" root \")\"");
  const auto mask = grammar->new_mask();
  constexpr int kDepth = 100'000;
  for (int k = 0; k < kDepth; ++k) mask->accept('[');
  for (int k = 0; k < kDepth; ++k) {
    if (k % 9999 == 0) {
      EXPECT_TRUE(allows(*mask, ']') && !allows(*mask, ')') && !allows(*mask, kTestEnd));
    }
    mask->accept(']');
  }
  EXPECT_EQ(allowed_ids(*mask), std::vector<int32_t>{kTestEnd});
}

TEST(Grammar, AmbiguityStaysSmall) {
  // Each letter has two ways to be read, so n letters have 2^n.
  const auto grammar = compile(
      "root ::= \"a\" x \"b\" | \"a\" y \"c\" | \"\"\nx ::= root | \"d\" root \ny ::= root | \"e\" root");
  const auto mask = grammar->new_mask();
  for (int k = 0; k < 5000; ++k) mask->accept('a');
  EXPECT_TRUE(allows(*mask, 'b') && allows(*mask, 'c') && allows(*mask, 'd') && !allows(*mask, kTestEnd));
  for (int k = 0; k < 5000; ++k) mask->accept(k % 3 == 0 ? 'b' : 'c');
  EXPECT_EQ(allowed_ids(*mask), std::vector<int32_t>{kTestEnd});
}

TEST(Grammar, BombsAreRefused) {
  EXPECT_NE(refusal("root ::= (((((\"a\"{1000}){1000}){1000}){1000}){1000})"), "accepted");
  EXPECT_NE(refusal("root ::= \"a\"{0,1000000}").find("at most 65535"), std::string::npos);
  EXPECT_NE(refusal("root ::= (((\"\"{60000}){60000}){60000})"), "accepted");
  EXPECT_NE(refusal("root ::= " + std::string(100'000, '(') + "\"a\"").find("deeper"), std::string::npos);
  EXPECT_NE(refusal(std::string(5'000'000, '#')).find("bytes"), std::string::npos);
  EXPECT_NE(refusal("root ::= " + std::string(1'000'000, '.')).find("too many"), std::string::npos);
  std::string doubling = "root ::= r0\n";
  for (int k = 0; k < 100; ++k) doubling += fmt::format("r{0} ::= r{1} r{1}\n", k, k + 1);
  check(doubling + "r100 ::= \"a\"?", {"", "aaa"}, {"b"});  // shared, so small
  // Deterministic, this would have a million states.
  check("root ::= [ab]* \"a\" [ab]{20}", {"b" + std::string(21, 'a')},
        {std::string(20, 'a'), "b" + std::string(20, 'a')});
  EXPECT_NE(refusal("root ::= (\"a\"?){60000} (\"b\"?){60000}"), "");  // either way in bounded time
}

TEST(Grammar, ManyChainedRules) {
  // Longer than any recursion over rules could go on the stack.
  std::string text = "root ::= r0\n";
  for (int k = 0; k < 20'000; ++k) text += fmt::format("r{} ::= \"a\" r{} | r{}\n", k, k + 1, k + 1);
  check(text + "r20000 ::= \"b\"", {"b", "aab"}, {"a", "c"});
}

}  // namespace
}  // namespace fathom
