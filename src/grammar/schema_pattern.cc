#include <algorithm>
#include <memory>
#include <vector>

#include "grammar/schema_strings.h"

namespace fathom {
namespace {

constexpr int64_t kManyRepeats = 65'535;
constexpr int64_t kNoEnd = -1;

/// A part of a pattern, already as GBNF.
struct Part {
  std::string text;       // can be put beside other parts
  int64_t shortest = 0;   // characters
  int64_t longest = 0;    // kNoEnd
  bool is_class = false;  // exactly one character of a class
  std::string repeated;   // the class, if this is one class, perhaps repeated
};

int64_t add_lengths(int64_t a, int64_t b) { return a == kNoEnd || b == kNoEnd ? kNoEnd : a + b; }
int64_t times(int64_t length, int64_t count) {
  if (length == 0 || count == 0) return 0;
  if (length == kNoEnd || count == kNoEnd) return kNoEnd;
  return std::min<int64_t>(length * count, int64_t{1} << 40);
}

CodeRanges digits() { return {{'0', '9'}}; }
CodeRanges words() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CodeRanges spaces() {
  return {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

class PatternParser {
 public:
  PatternParser(std::string_view text, std::string_view any) : text_(text), any_(any) {}

  Result<PatternGrammar> parse() {
    if (text_.size() > kPatternBytesMax)
      return Error::invalid("expected at most {} bytes, found {}", kPatternBytesMax, text_.size());
    PatternGrammar grammar;
    std::vector<std::string> choices;
    do {
      const bool from_start = take("^");
      FATHOM_ASSIGN(Part part, parse_sequence(0));
      const bool to_end = take("$");
      if (at_ < text_.size() && text_[at_] != '|')
        return fail("{} is not supported here: anchors stand at the ends of a pattern or of its alternatives",
                    found());
      const int64_t longest = from_start && to_end ? part.longest : kNoEnd;
      grammar.min_length = choices.empty() ? part.shortest : std::min(grammar.min_length, part.shortest);
      grammar.max_length = choices.empty() || longest == kNoEnd || grammar.max_length == kNoEnd
                               ? (choices.empty() ? longest : kNoEnd)
                               : std::max(grammar.max_length, longest);
      grammar.repeated = choices.empty() && from_start && to_end ? part.repeated : "";
      choices.push_back(fmt::format("{}{}{}", from_start ? "" : fmt::format("{}* ", any_), part.text,
                                    to_end ? "" : fmt::format(" {}*", any_)));
    } while (take("|"));
    grammar.expression = fmt::format("({})", fmt::join(choices, " | "));
    return grammar;
  }

 private:
  template <class... Args>
  Error fail(fmt::format_string<Args...> text, Args&&... args) const {
    return Error::invalid("at byte {}: {}", at_, fmt::format(text, std::forward<Args>(args)...));
  }
  std::string found() const {
    return at_ < text_.size() ? fmt::format("'{}'", text_.substr(at_, 1)) : std::string("the end");
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  Result<Part> parse_choice(int depth) {
    std::vector<std::string> choices;
    Part all;
    do {
      FATHOM_ASSIGN(const Part part, parse_sequence(depth));
      const bool first = choices.empty();
      all.shortest = first ? part.shortest : std::min(all.shortest, part.shortest);
      if (first)
        all.longest = part.longest;
      else
        all.longest =
            all.longest == kNoEnd || part.longest == kNoEnd ? kNoEnd : std::max(all.longest, part.longest);
      all.repeated = first ? part.repeated : "";
      choices.push_back(part.text);
    } while (take("|"));
    all.text = fmt::format("({})", fmt::join(choices, " | "));
    return all;
  }

  Result<Part> parse_sequence(int depth) {
    Part all;
    int parts = 0;
    while (at_ < text_.size() && peek() != '|' && peek() != ')' && peek() != '$') {
      FATHOM_ASSIGN(Part part, parse_atom(depth));
      FATHOM_ASSIGN(part, parse_quantifier(std::move(part)));
      all.text += (parts > 0 ? " " : "") + part.text;
      all.shortest = std::min<int64_t>(all.shortest + part.shortest, int64_t{1} << 40);
      all.longest = add_lengths(all.longest, part.longest);
      all.repeated = parts == 0 ? part.repeated : "";
      ++parts;
    }
    if (parts == 0) all.text = "\"\"";
    return all;
  }

  Result<Part> parse_atom(int depth) {
    if (take("(")) {
      if (depth >= kPatternDepthMax) return fail("groups nest deeper than {}", kPatternDepthMax);
      if (take("?") && !take(":")) {
        if (!take("<") || peek() == '=' || peek() == '!') return fail("look-around is not supported");
        const size_t end = text_.find('>', at_);
        if (end == text_.npos) return fail("expected '>' after the name of a group");
        at_ = end + 1;
      }
      FATHOM_ASSIGN(Part inner, parse_choice(depth + 1));
      if (!take(")")) return fail("expected ')', found {}", found());
      return inner;
    }
    if (take("."))
      return class_part(invert_ranges(normalize_ranges({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})));
    if (take("[")) return parse_class();
    if (take("\\")) {
      FATHOM_ASSIGN(const CodeRanges ranges, parse_escape(false));
      return class_part(ranges);
    }
    if (std::string_view("*+?{}]^").find(peek()) != std::string_view::npos)
      return fail("{} is not expected here", found());
    FATHOM_ASSIGN(const char32_t code, take_character());
    return class_part({{code, code}});
  }

  Result<Part> class_part(const CodeRanges& ranges) const {
    if (ranges.empty()) return fail("no character is in this class");
    Part part;
    part.text = gbnf_string_class(ranges);
    part.shortest = part.longest = 1;
    part.is_class = true;
    part.repeated = part.text;
    return part;
  }

  Result<int64_t> parse_count() {
    const size_t start = at_;
    int64_t count = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      count = std::min(count * 10 + (peek() - '0'), kManyRepeats + 1);
    if (at_ == start) return fail("expected a number of repetitions, found {}", found());
    if (count > kManyRepeats) return fail("more than {} repetitions", kManyRepeats);
    return count;
  }

  Result<Part> parse_quantifier(Part part) {
    int64_t least = 0, most = kNoEnd;
    if (take("*")) {
    } else if (take("+")) {
      least = 1;
    } else if (take("?")) {
      most = 1;
    } else if (take("{")) {
      FATHOM_ASSIGN(least, parse_count());
      most = least;
      if (take(",")) {
        most = kNoEnd;
        if (peek() != '}') {
          FATHOM_ASSIGN(most, parse_count());
        }
      }
      if (!take("}")) return fail("expected '}}', found {}", found());
      if (most != kNoEnd && most < least) return fail("at least {} and at most {} repetitions", least, most);
    } else {
      return part;
    }
    take("?");  // lazy or not, the same texts match
    const std::string range =
        most == kNoEnd ? fmt::format("{{{},}}", least) : fmt::format("{{{},{}}}", least, most);
    // Grouped: what is repeated may be a sequence, and a repetition of a repetition needs parentheses.
    part.text = fmt::format("({}){}", part.text, range);
    part.repeated = part.is_class ? part.repeated : "";
    part.is_class = false;
    part.shortest = times(part.shortest, least);
    part.longest = times(part.longest, most);
    return part;
  }

  Result<char32_t> take_character() {
    const char32_t code = take_code(text_, at_);
    if (code > kLastCode)
      return fail("expected a character, found {}", at_ < text_.size() ? "no UTF-8" : "the end");
    return code;
  }

  Result<uint32_t> parse_hex(int count) {
    uint32_t value = 0;
    for (int k = 0; k < count; ++k, ++at_) {
      const char letter = peek();
      const bool digit = letter >= '0' && letter <= '9';
      const char lower = static_cast<char>(letter | 0x20);
      if (!digit && (lower < 'a' || lower > 'f')) return fail("expected {} hexadecimal digits", count);
      value = value << 4 | static_cast<uint32_t>(digit ? letter - '0' : lower - 'a' + 10);
    }
    return value;
  }

  // Behind \u: four digits, two times four for a pair of surrogates, or {digits}.
  Result<char32_t> parse_unicode() {
    uint32_t code = 0;
    if (take("{")) {
      const size_t end = text_.find('}', at_);
      if (end == text_.npos || end == at_ || end - at_ > 6)
        return fail("expected 1 to 6 hexadecimal digits and '}}'");
      FATHOM_ASSIGN(code, parse_hex(static_cast<int>(end - at_)));
      ++at_;
    } else {
      FATHOM_ASSIGN(code, parse_hex(4));
      if (code >= 0xD800 && code <= 0xDBFF && take("\\u")) {
        FATHOM_ASSIGN(const uint32_t low, parse_hex(4));
        if (low < 0xDC00 || low > 0xDFFF) return fail("a surrogate without its other half");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (code > kLastCode || (code >= 0xD800 && code <= 0xDFFF)) return fail("U+{:04X} is no character", code);
    return static_cast<char32_t>(code);
  }

  /// Behind the backslash.
  Result<CodeRanges> parse_escape(bool in_class) {
    const auto one = [](uint32_t code) { return CodeRanges{{char32_t{code}, char32_t{code}}}; };
    const char letter = peek();
    ++at_;
    switch (letter) {
      case 'd':
        return digits();
      case 'D':
        return invert_ranges(digits());
      case 'w':
        return words();
      case 'W':
        return invert_ranges(words());
      case 's':
        return spaces();
      case 'S':
        return invert_ranges(spaces());
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'v':
        return one('\v');
      case 'f':
        return one('\f');
      case 'r':
        return one('\r');
      case '0':
        if (peek() < '0' || peek() > '9') return one(0);
        break;
      case 'b':
        if (in_class) return one('\b');
        break;
      case 'x': {
        FATHOM_ASSIGN(const uint32_t code, parse_hex(2));
        return one(code);
      }
      case 'u': {
        FATHOM_ASSIGN(const char32_t code, parse_unicode());
        return one(code);
      }
      case 'c': {
        const char control = peek();
        if ((control >= 'a' && control <= 'z') || (control >= 'A' && control <= 'Z')) {
          ++at_;
          return one(static_cast<uint32_t>(control) & 31);
        }
        break;
      }
      default:
        if (letter > ' ' && letter < 0x7F &&
            std::string_view("^$\\.*+?()[]{}|/-").find(letter) != std::string_view::npos)
          return one(static_cast<uint32_t>(letter));
        if (letter > ' ' && letter < '0') return one(static_cast<uint32_t>(letter));  // other marks
    }
    --at_;
    return fail("the escape \\{} is not supported", text_.substr(at_, 1));
  }

  Result<CodeRanges> parse_class_item() {
    if (take("\\")) return parse_escape(true);
    FATHOM_ASSIGN(const char32_t code, take_character());
    return CodeRanges{{code, code}};
  }

  Result<Part> parse_class() {
    const bool inverse = take("^");
    CodeRanges ranges;
    while (!take("]")) {
      if (at_ >= text_.size()) return fail("expected ']', found the end");
      FATHOM_ASSIGN(CodeRanges item, parse_class_item());
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        FATHOM_ASSIGN(const CodeRanges last, parse_class_item());
        const bool single = item.size() == 1 && last.size() == 1 && item[0].first == item[0].last &&
                            last[0].first == last[0].last;
        if (!single || last[0].first < item[0].first)
          return fail("a range of characters is empty or has no single ends");
        item = {{item[0].first, last[0].first}};
      }
      ranges.insert(ranges.end(), item.begin(), item.end());
    }
    ranges = normalize_ranges(std::move(ranges));
    return class_part(inverse ? invert_ranges(ranges) : ranges);
  }

  std::string_view text_;
  std::string_view any_;
  size_t at_ = 0;
};

std::string class_character(char32_t code) {
  const auto value = static_cast<uint32_t>(code);
  const bool plain =
      (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z');
  if (plain) return std::string(1, static_cast<char>(code));
  if (value < 0x80) return fmt::format("\\x{:02X}", value);
  return value < 0x10000 ? fmt::format("\\u{:04X}", value) : fmt::format("\\U{:08X}", value);
}

}  // namespace

std::string gbnf_class(const CodeRanges& ranges, bool inverse) {
  std::string text = inverse ? "[^" : "[";
  for (const CodeRange& range : ranges) {
    text += class_character(range.first);
    if (range.last > range.first) text += "-" + class_character(range.last);
  }
  return text + "]";
}

std::string gbnf_string_class(const CodeRanges& ranges) {
  static const CodeRanges escaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  static const std::string_view letters = "\b\f\n\r\t\"\\", names = "bfnrt\"\\";
  std::vector<std::string> parts;
  if (const CodeRanges plain = intersect_ranges(ranges, invert_ranges(escaped)); !plain.empty())
    parts.push_back(gbnf_class(plain));
  for (const CodeRange& range : intersect_ranges(ranges, escaped)) {
    for (char32_t code = range.first; code <= range.last; ++code) {
      const size_t letter = letters.find(static_cast<char>(code));
      if (letter == letters.npos)
        parts.push_back(fmt::format("\"\\\\u{:04x}\"", static_cast<uint32_t>(code)));
      else
        parts.push_back(fmt::format("\"\\\\{}{}\"", names[letter] == '"' || names[letter] == '\\' ? "\\" : "",
                                    names[letter]));
    }
  }
  return parts.size() == 1 ? parts[0] : fmt::format("({})", fmt::join(parts, " | "));
}

Result<PatternGrammar> gbnf_pattern(std::string_view pattern, std::string_view any) {
  return PatternParser(pattern, any).parse();
}

}  // namespace fathom
