#include "grammar/gbnf.h"

#include <algorithm>
#include <unordered_map>

#include "grammar/grammar.h"
#include "text/utf8.h"

namespace fathom {
namespace {

using Kind = GbnfNode::Kind;

bool is_name(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') || letter == '-' || letter == '_';
}
bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

int hex_value(char letter) {
  if (is_digit(letter)) return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return -1;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Gbnf> parse() {
    if (text_.size() > kGbnfTextBytesMax)
      return Error::invalid("grammar: expected at most {} bytes, found {}", kGbnfTextBytesMax, text_.size());
    skip_space(true);
    while (at_ < text_.size()) FATHOM_TRY(parse_rule());
    for (size_t rule = 0; rule < gbnf_.rules.size(); ++rule)
      if (gbnf_.rules[rule].body < 0)
        return fail_at(used_at_[rule], "the rule \"{}\" is not defined", gbnf_.rules[rule].name);
    const auto root = ids_.find("root");
    if (root == ids_.end()) return Error::invalid("grammar: expected a rule \"root\", found none");
    gbnf_.root = root->second;
    return std::move(gbnf_);
  }

 private:
  template <class... Args>
  Error fail_at(size_t position, fmt::format_string<Args...> text, Args&&... args) const {
    const auto [line, column] = place(position);
    return Error::invalid("grammar, line {}, column {}: {}", line, column,
                          fmt::format(text, std::forward<Args>(args)...));
  }
  std::pair<int, int> place(size_t position) const {
    const std::string_view before = text_.substr(0, position);
    const auto line = std::count(before.begin(), before.end(), '\n');
    const size_t start = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
    return {static_cast<int>(line) + 1, static_cast<int>(position - start) + 1};
  }
  std::string found() const {
    if (at_ >= text_.size()) return "the end";
    const char letter = text_[at_];
    if (letter == '\n' || letter == '\r') return "the end of the line";
    if (letter > ' ' && letter < 0x7F) return fmt::format("'{}'", letter);
    return fmt::format("byte 0x{:02X}", static_cast<uint8_t>(letter));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  void skip_space(bool newlines) {
    while (at_ < text_.size()) {
      const char letter = text_[at_];
      if (letter == '#') {
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else if (letter == ' ' || letter == '\t' || (newlines && (letter == '\n' || letter == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  Result<int32_t> add(GbnfNode node) {
    if (gbnf_.nodes.size() >= kGbnfNodesMax)
      return fail_at(at_, "more than {} parts are too many", kGbnfNodesMax);
    gbnf_.nodes.push_back(std::move(node));
    return static_cast<int32_t>(gbnf_.nodes.size() - 1);
  }

  Result<int32_t> take_rule_name() {
    const size_t start = at_;
    while (is_name(peek())) ++at_;
    if (at_ == start) return fail_at(at_, "expected a rule's name, found {}", found());
    const auto [entry, fresh] =
        ids_.try_emplace(std::string(text_.substr(start, at_ - start)), static_cast<int32_t>(ids_.size()));
    if (fresh) {
      if (gbnf_.rules.size() >= kGbnfRulesMax)
        return fail_at(start, "more than {} rules are too many", kGbnfRulesMax);
      gbnf_.rules.push_back({entry->first});
      used_at_.push_back(start);
    }
    return entry->second;
  }

  Result<void> parse_rule() {
    const size_t start = at_;
    FATHOM_ASSIGN(const int32_t id, take_rule_name());
    skip_space(false);
    if (!take("::=")) return fail_at(at_, "expected \"::=\" after the rule's name, found {}", found());
    skip_space(true);
    FATHOM_ASSIGN(const int32_t body, parse_choice(0));
    if (peek() == '\r') ++at_;
    if (at_ < text_.size() && peek() != '\n' && text_[at_ - 1] != '\r')
      return fail_at(at_, "expected the end of the rule, found {}", found());
    skip_space(true);
    GbnfRule& rule = gbnf_.rules[static_cast<size_t>(id)];
    if (rule.body >= 0) return fail_at(start, "the rule \"{}\" was defined in line {}", rule.name, rule.line);
    rule.body = body;
    // Counted on from the rule before: counting from the start would be quadratic.
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(counted_to_),
                                         text_.begin() + static_cast<ptrdiff_t>(start), '\n'));
    counted_to_ = start;
    const size_t newline = start == 0 ? text_.npos : text_.rfind('\n', start - 1);
    rule.line = line_;
    rule.column = static_cast<int>(newline == text_.npos ? start : start - newline - 1) + 1;
    return {};
  }

  Result<int32_t> parse_choice(int depth) {
    GbnfNode choice{.kind = Kind::kChoice};
    do {
      skip_space(true);
      FATHOM_ASSIGN(const int32_t sequence, parse_sequence(depth));
      choice.children.push_back(sequence);
    } while (take("|"));
    if (choice.children.size() == 1) return choice.children[0];
    return add(std::move(choice));
  }

  Result<int32_t> parse_sequence(int depth) {
    GbnfNode sequence{.kind = Kind::kSequence};
    skip_space(depth > 0);
    while (at_ < text_.size() && peek() != '|' && peek() != ')' && peek() != '\n' && peek() != '\r') {
      FATHOM_ASSIGN(int32_t item, parse_item(depth));
      skip_space(depth > 0);
      FATHOM_ASSIGN(item, parse_repetition(item));
      skip_space(depth > 0);
      sequence.children.push_back(item);
    }
    if (sequence.children.size() == 1) return sequence.children[0];
    return add(std::move(sequence));
  }

  Result<int32_t> parse_item(int depth) {
    const char letter = peek();
    if (letter == '"') return parse_literal();
    if (letter == '[') return parse_class();
    if (letter == '<' || letter == '!') return parse_token();
    if (letter == '.') {
      ++at_;
      return add({.kind = Kind::kClass, .ranges = invert_ranges({})});
    }
    if (letter == '(') {
      if (depth >= kGbnfDepthMax) return fail_at(at_, "parentheses nest deeper than {}", kGbnfDepthMax);
      const size_t opened = at_++;
      FATHOM_ASSIGN(const int32_t inner, parse_choice(depth + 1));
      if (!take(")")) {
        const auto [line, column] = place(opened);
        return fail_at(at_, "expected ')' for the '(' of line {}, column {}, found {}", line, column,
                       found());
      }
      return inner;
    }
    if (!is_name(letter))
      return fail_at(at_, "expected a literal, class, group, token or rule, found {}", found());
    FATHOM_ASSIGN(const int32_t rule, take_rule_name());
    return add({.kind = Kind::kRule, .id = rule});
  }

  Result<int32_t> parse_number(const char* what, int32_t largest) {
    const size_t start = at_;
    int64_t value = 0;
    for (; is_digit(peek()); ++at_) value = std::min<int64_t>(value * 10 + (peek() - '0'), int64_t{1} << 40);
    if (at_ == start) return fail_at(at_, "expected {}, found {}", what, found());
    if (value > largest)
      return fail_at(start, "{}: expected at most {}, found {}", what, largest,
                     text_.substr(start, at_ - start));
    return static_cast<int32_t>(value);
  }

  Result<int32_t> parse_repetition(int32_t item) {
    GbnfNode repeat{.kind = Kind::kRepeat, .min = 0, .max = -1, .children = {item}};
    if (take("*")) return add(std::move(repeat));
    if (take("+")) {
      repeat.min = 1;
    } else if (take("?")) {
      repeat.max = 1;
    } else if (const size_t start = at_; take("{")) {
      skip_space(false);
      FATHOM_ASSIGN(repeat.min, parse_number("a number of repetitions", kGbnfRepetitionMax));
      repeat.max = repeat.min;
      skip_space(false);
      if (take(",")) {
        skip_space(false);
        repeat.max = -1;
        if (is_digit(peek())) {
          FATHOM_ASSIGN(repeat.max, parse_number("a number of repetitions", kGbnfRepetitionMax));
        }
      }
      skip_space(false);
      if (!take("}")) return fail_at(at_, "expected '}}' after the repetitions, found {}", found());
      if (repeat.max >= 0 && repeat.max < repeat.min)
        return fail_at(start, "at least {} and at most {} repetitions contradict each other", repeat.min,
                       repeat.max);
    } else {
      return item;
    }
    // "a+*" is no notation, and a mistake more often than a wish.
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{')
      return fail_at(at_, "a repetition of a repetition needs parentheses");
    return add(std::move(repeat));
  }

  /// Behind the backslash.
  Result<char32_t> parse_escape() {
    const size_t start = at_ - 1;
    const char letter = peek();
    ++at_;
    switch (letter) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<char32_t>(letter);
      case 'x':
      case 'u':
      case 'U':
        break;
      default:
        return fail_at(start, "expected an escape \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\x \\u or \\U");
    }
    const int digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
    uint32_t code = 0;
    for (int k = 0; k < digits; ++k, ++at_) {
      const int value = hex_value(peek());
      if (value < 0)
        return fail_at(at_, "expected {} hexadecimal digits after \\{}, found {}", digits, letter, found());
      code = code << 4 | static_cast<uint32_t>(value);
    }
    if (code > kLastCode || (code >= 0xD800 && code <= 0xDFFF))
      return fail_at(start, "U+{:04X} is no character", code);
    return static_cast<char32_t>(code);
  }

  Result<int32_t> parse_literal() {
    const size_t opened = at_++;
    GbnfNode node{.kind = Kind::kBytes};
    while (!take("\"")) {
      if (at_ >= text_.size()) return fail_at(opened, "this literal has no closing '\"'");
      if (take("\\")) {
        FATHOM_ASSIGN(const char32_t code, parse_escape());
        append_utf8(code, node.bytes);
      } else {
        node.bytes += text_[at_++];  // bytes that are no UTF-8 stay what they are
      }
    }
    return add(std::move(node));
  }

  Result<char32_t> parse_class_character() {
    if (take("\\")) return parse_escape();
    const char32_t code = take_code(text_, at_);
    if (code > kLastCode) return fail_at(at_, "expected UTF-8 in a class, found {}", found());
    return code;
  }

  Result<int32_t> parse_class() {
    const size_t opened = at_++;
    const bool inverse = take("^");
    GbnfNode node{.kind = Kind::kClass};
    while (!take("]")) {
      if (at_ >= text_.size()) return fail_at(opened, "this class has no closing ']'");
      const size_t start = at_;
      FATHOM_ASSIGN(const char32_t first, parse_class_character());
      char32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        FATHOM_ASSIGN(last, parse_class_character());
      }
      if (last < first)
        return fail_at(start, "a range from U+{:04X} to U+{:04X} is empty", uint32_t{first}, uint32_t{last});
      node.ranges.push_back({first, last});
    }
    node.ranges = normalize_ranges(std::move(node.ranges));
    if (inverse) node.ranges = invert_ranges(node.ranges);
    if (node.ranges.empty()) return fail_at(opened, "no character is in this class");
    return add(std::move(node));
  }

  Result<int32_t> parse_token() {
    GbnfNode node{.kind = take("!") ? Kind::kOtherToken : Kind::kToken};
    if (!take("<[")) return fail_at(at_, "expected a token as <[id]> or !<[id]>, found {}", found());
    FATHOM_ASSIGN(node.id, parse_number("a token id", INT32_MAX));
    if (!take("]>")) return fail_at(at_, "expected \"]>\" after a token id, found {}", found());
    return add(std::move(node));
  }

  std::string_view text_;
  size_t at_ = 0;
  Gbnf gbnf_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<size_t> used_at_;  // of each rule, where its name came first
  int line_ = 1;
  size_t counted_to_ = 0;
};

}  // namespace

Result<Gbnf> parse_gbnf(std::string_view text) { return Parser(text).parse(); }

std::string gbnf_literal(std::string_view bytes) {
  std::string literal = "\"";
  for (const char letter : bytes) {
    const auto byte = static_cast<uint8_t>(letter);
    if (letter == '"' || letter == '\\')
      literal += {'\\', letter};
    else if (byte < 0x20 || byte == 0x7F)
      literal += fmt::format("\\x{:02X}", byte);
    else
      literal += letter;
  }
  return literal + "\"";
}

}  // namespace fathom
