// Masks against a recogniser that tries everything, for every text over a small vocabulary.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "grammar/gbnf.h"
#include "grammar/grammar.h"

namespace fathom {
namespace {

using Kind = GbnfNode::Kind;

/// An answer is a row of symbols: bytes 0..255, or 256 + id for a token that was taken whole.
using Answer = std::vector<int>;

/// Says by plain recursion whether an answer can be gone on with, and whether it is complete.
class Oracle {
 public:
  explicit Oracle(const Gbnf& gbnf) : gbnf_(gbnf), productive_(gbnf.rules.size()) {
    for (size_t round = 0; round < gbnf.rules.size(); ++round)
      for (size_t rule = 0; rule < gbnf.rules.size(); ++rule)
        productive_[rule] = productive_[rule] || productive(gbnf.rules[rule].body);
  }

  struct Match {
    std::set<size_t> ends;
    bool alive = false;  // something that the part matches begins with the rest of the answer
  };
  Match match(const Answer& answer) {
    memo_.clear();
    answer_ = &answer;
    return match_rule(gbnf_.root, 0);
  }

 private:
  const GbnfNode& node(int32_t id) const { return gbnf_.nodes[static_cast<size_t>(id)]; }

  bool productive(int32_t id) const {
    const GbnfNode& it = node(id);
    if (it.kind == Kind::kRule) return productive_[static_cast<size_t>(it.id)];
    if (it.kind == Kind::kRepeat) return it.min == 0 || productive(it.children[0]);
    bool any = it.children.empty(), all = true;
    for (const int32_t child : it.children) any |= productive(child), all &= productive(child);
    return it.kind == Kind::kChoice ? any : all;
  }

  Match match_rule(int32_t rule, size_t at) {
    if (const auto known = memo_.find({rule, at}); known != memo_.end()) return known->second;
    memo_[{rule, at}] = {};  // a rule that begins with itself matches nothing in that way, or is not compiled
    const Match found = match_node(gbnf_.rules[static_cast<size_t>(rule)].body, at);
    return memo_[{rule, at}] = found;
  }

  Match match_symbols(const std::vector<int>& symbols, size_t at) const {
    size_t same = 0;
    while (same < symbols.size() && at + same < answer_->size() && (*answer_)[at + same] == symbols[same])
      ++same;
    Match match;
    match.alive = at + same == answer_->size();
    if (same == symbols.size()) match.ends.insert(at + same);
    return match;
  }

  // One after the other; `ends` of what came before.
  Match then(const Match& before, int32_t next) {
    Match match;
    match.alive = before.alive && productive(next);
    for (const size_t end : before.ends) {
      const Match part = match_node(next, end);
      match.ends.insert(part.ends.begin(), part.ends.end());
      match.alive |= part.alive;
    }
    return match;
  }

  Match match_node(int32_t id, size_t at) {
    const GbnfNode& it = node(id);
    Match match;
    switch (it.kind) {
      case Kind::kBytes: {
        std::vector<int> symbols;
        for (const char byte : it.bytes) symbols.push_back(static_cast<uint8_t>(byte));
        return match_symbols(symbols, at);
      }
      case Kind::kClass:  // of ASCII in these tests
        if (at == answer_->size())
          match.alive = true;
        else if (std::any_of(it.ranges.begin(), it.ranges.end(), [&](CodeRange range) {
                   const auto symbol = static_cast<char32_t>((*answer_)[at]);
                   return symbol < 0x80 && range.first <= symbol && symbol <= range.last;
                 }))
          match.ends.insert(at + 1), match.alive = at + 1 == answer_->size();
        return match;
      case Kind::kToken:
        return match_symbols({256 + it.id}, at);
      case Kind::kOtherToken:
        if (at == answer_->size())
          match.alive = true;
        else if ((*answer_)[at] >= 256 && (*answer_)[at] != 256 + it.id)
          match.ends.insert(at + 1), match.alive = at + 1 == answer_->size();
        return match;
      case Kind::kRule:
        return match_rule(it.id, at);
      case Kind::kSequence: {
        match = {{at}, at == answer_->size()};
        std::vector<int32_t> left = it.children;
        for (size_t k = 0; k < left.size(); ++k) match = then(match, left[k]);
        return match;
      }
      case Kind::kChoice:
        for (const int32_t child : it.children) {
          const Match one = match_node(child, at);
          match.ends.insert(one.ends.begin(), one.ends.end());
          match.alive |= one.alive;
        }
        return match;
      case Kind::kRepeat:
        return match_repeat(it, at);
    }
    return match;
  }

  Match match_repeat(const GbnfNode& it, size_t at) {
    const int32_t child = it.children[0];
    const int rounds = it.max >= 0 ? it.max : it.min + static_cast<int>(answer_->size()) + 1;
    Match all, now = {{at}, at == answer_->size()};
    for (int round = 0;; ++round) {
      if (round >= it.min) {
        all.ends.insert(now.ends.begin(), now.ends.end());
        all.alive |= now.alive;
      }
      if (round == rounds) break;
      now = then(now, child);
    }
    return all;
  }

  const Gbnf& gbnf_;
  std::vector<char> productive_;
  const Answer* answer_ = nullptr;
  std::map<std::pair<int32_t, size_t>, Match> memo_;
};

constexpr int32_t kEnd = 0;  // 1 and 2 are control tokens

const std::vector<std::string>& small_vocabulary() {
  static const std::vector<std::string> tokens = {
      "",   "",   "",   "a",  "b",  "c",   "(",   ")",  "ab",  "ba", "aa",
      "bb", "(a", "a)", "))", "((", "abc", "cab", "()", "a)b", "a"};  // the last has the bytes of another one
  return tokens;
}

std::vector<bool> mask_of(TokenMask& mask, size_t size) {
  std::vector<uint64_t> bits((size + 63) / 64, ~uint64_t{0});
  mask.restrict(bits);
  std::vector<bool> allowed(size);
  for (size_t id = 0; id < size; ++id) allowed[id] = (bits[id / 64] >> (id % 64) & 1) != 0;
  return allowed;
}

/// Compares all masks along all answers of up to `depth` tokens, every way of taking them.
class Comparison {
 public:
  Comparison(const std::string& text, const Gbnf& gbnf, std::shared_ptr<const Grammar> grammar)
      : text_(text), oracle_(gbnf), grammar_(std::move(grammar)) {}

  void compare(const std::vector<int32_t>& tokens, int depth) {
    const std::unique_ptr<TokenMask> mask = grammar_->new_mask();
    for (const int32_t id : tokens) {
      if (tokens.size() % 2 == 0) mask_of(*mask, small_vocabulary().size());  // asked on the way or not
      mask->accept(id);
    }
    const std::vector<bool> found = mask_of(*mask, small_vocabulary().size());
    for (int32_t id = 0; id < static_cast<int32_t>(found.size()); ++id) {
      std::vector<int32_t> longer = tokens;
      if (id != kEnd) longer.push_back(id);
      const bool expected = readable(longer, id == kEnd);
      ASSERT_EQ(found[static_cast<size_t>(id)], expected)
          << text_ << "\nafter " << ::testing::PrintToString(tokens) << " token " << id << " \""
          << small_vocabulary()[static_cast<size_t>(id)] << "\"";
      ++masks;
      if (expected && id != kEnd && depth > 0) compare(longer, depth - 1);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  int64_t masks = 0;

 private:
  // Each token may have been taken whole or byte by byte.
  bool readable(const std::vector<int32_t>& tokens, bool complete) {
    std::vector<Answer> answers = {{}};
    for (const int32_t id : tokens) {
      std::vector<Answer> next;
      for (const Answer& answer : answers) {
        const std::string& bytes = small_vocabulary()[static_cast<size_t>(id)];
        next.push_back(answer);
        next.back().push_back(256 + id);
        if (bytes.empty()) continue;
        next.push_back(answer);
        for (const char byte : bytes) next.back().push_back(static_cast<uint8_t>(byte));
      }
      answers = std::move(next);
    }
    for (const Answer& answer : answers) {
      const Oracle::Match match = oracle_.match(answer);
      if (complete ? match.ends.contains(answer.size()) : match.alive) return true;
    }
    return false;
  }

  std::string text_;
  Oracle oracle_;
  std::shared_ptr<const Grammar> grammar_;
};

std::shared_ptr<const GrammarVocabulary> vocabulary() {
  static const auto made = GrammarVocabulary::make(small_vocabulary(), {kEnd});
  return made;
}

void compare(const std::string& text, int depth) {
  const Result<Gbnf> gbnf = parse_gbnf(text);
  ASSERT_TRUE(gbnf.ok()) << text << gbnf.error().message;
  auto grammar = compile_gbnf(text, vocabulary());
  ASSERT_TRUE(grammar.ok()) << text << grammar.error().message;
  Comparison comparison(text, *gbnf, *grammar);
  comparison.compare({}, depth);
  EXPECT_GT(comparison.masks, 0);
}

TEST(GrammarOracle, KnownGrammars) {
  compare("root ::= \"ab\" | \"abc\"", 3);
  compare("root ::= [ab]*", 2);
  compare("root ::= \"(\" root \")\" | \"a\"?", 3);
  compare("root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"\"", 3);  // palindromes: where is the middle?
  compare("root ::= pair* \"c\"\npair ::= \"(\" pair* \")\" | \"a\"", 2);
  compare("root ::= (\"a\" | \"ab\"){2,3} \"c\"?", 3);
  compare("root ::= x x | y \"c\"\nx ::= \"a\" y?\ny ::= \"b\" x | \"\"", 3);
  compare("root ::= [ab]* \"a\" [ab]{3}", 3);
  compare("root ::= x root? \nx ::= \"a\"+ | \"b\" x \"b\"", 3);
}

TEST(GrammarOracle, TokenLiterals) {
  compare("root ::= \"a\" <[1]> \"b\"*", 3);
  compare("root ::= !<[1]>* <[1]> \"ab\"", 2);
  compare("root ::= <[3]> \"b\" | \"ab\" <[2]>", 3);  // a token of text, taken whole or as its bytes
  compare("root ::= (\"a\" !<[3]>)+", 2);
  compare("root ::= x <[2]> | \"a\" x\nx ::= <[1]> | !<[0]> \"c\"", 2);
}

/// A grammar of a few rules; may be left-recursive or match nothing.
std::string random_grammar(std::mt19937& random) {
  const auto pick = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  const char* literals[] = {"\"a\"", "\"b\"", "\"ab\"", "\"c\"", "\"\"",  "\"(\"",
                            "\")\"", "[ab]",  "[^a]",   "<[1]>", "!<[3]>"};
  const char* names[] = {"root", "x", "y", "z"};
  const char* repeats[] = {"", "", "", "", "*", "+", "?", "{2}", "{1,2}", "{2,}"};
  std::string text;
  for (const char* name : names) {
    text += std::string(name) + " ::= ";
    for (int choice = 0, choices = 1 + pick(3); choice < choices; ++choice) {
      if (choice > 0) text += " | ";
      for (int item = 0, items = 1 + pick(3); item < items; ++item) {
        const bool rule = pick(3) == 0;
        const bool group = pick(5) == 0;
        const std::string one = rule ? names[pick(4)] : literals[pick(11)];
        text += group ? "(" + one + " | " + names[1 + pick(3)] + ")" : one;
        text += repeats[pick(10)];
        text += " ";
      }
    }
    text += "\n";
  }
  return text;
}

TEST(GrammarOracle, RandomGrammars) {
  std::mt19937 random(7);
  int compared = 0;
  for (int round = 0; round < 1500; ++round) {
    const std::string text = random_grammar(random);
    const Result<Gbnf> gbnf = parse_gbnf(text);
    ASSERT_TRUE(gbnf.ok()) << text << gbnf.error().message;
    auto grammar = compile_gbnf(text, vocabulary());
    if (!grammar.ok()) continue;
    ++compared;
    Comparison comparison(text, *gbnf, *grammar);
    // Along one random answer, all masks.
    std::vector<int32_t> tokens;
    for (int step = 0; step < 6; ++step) {
      comparison.compare(tokens, 0);
      if (HasFatalFailure()) return;
      const std::unique_ptr<TokenMask> mask = (*grammar)->new_mask();
      for (const int32_t id : tokens) mask->accept(id);
      const std::vector<bool> allowed = mask_of(*mask, small_vocabulary().size());
      std::vector<int32_t> choices;
      for (int32_t id = 1; id < static_cast<int32_t>(allowed.size()); ++id)
        if (allowed[static_cast<size_t>(id)]) choices.push_back(id);
      if (choices.empty()) break;
      tokens.push_back(choices[random() % choices.size()]);
    }
  }
  EXPECT_GT(compared, 300);
}

}  // namespace
}  // namespace fathom
