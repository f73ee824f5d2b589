// Any text as GBNF and as a JSON Schema: refused, or compiled, and then a walk along a mask never ends where
// nothing is allowed and never takes what the mask forbids.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace {

using namespace fathom;

constexpr int32_t kEnd = 256;

void require(bool holds) {
  if (!holds) std::abort();
}

std::shared_ptr<const GrammarVocabulary> vocabulary() {
  static const auto made = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
    tokens.push_back("");
    for (const char* token : {"", "{\"", "\":", "ab", "\xE6\x97", "\xA5\"", "\n  ", "\\u"})
      tokens.push_back(token);
    return GrammarVocabulary::make(std::move(tokens), {kEnd});
  }();
  return made;
}

void walk(const Grammar& grammar, std::string_view choices) {
  const auto size = static_cast<size_t>(vocabulary()->size());
  const std::unique_ptr<TokenMask> mask = grammar.new_mask();
  for (size_t step = 0; step < 48; ++step) {
    std::vector<uint64_t> bits((size + 63) / 64, ~uint64_t{0});
    mask->restrict(bits);
    std::vector<int32_t> allowed;
    for (size_t id = 0; id < size; ++id)
      if ((bits[id / 64] >> (id % 64) & 1) != 0) allowed.push_back(static_cast<int32_t>(id));
    require(!allowed.empty());
    const size_t choice =
        choices.empty() ? step : static_cast<uint8_t>(choices[step % choices.size()]) + step;
    const int32_t id = allowed[choice % allowed.size()];
    mask->accept(id);
    if (id != kEnd) continue;
    std::vector<uint64_t> after((size + 63) / 64, ~uint64_t{0});
    mask->restrict(after);
    for (size_t other = 0; other < size; ++other)
      require(((after[other / 64] >> (other % 64) & 1) != 0) == (other == static_cast<size_t>(kEnd)));
    return;
  }
}

void compile_and_walk(std::string_view text, std::string_view choices) {
  auto grammar = compile_gbnf(text, vocabulary());
  if (grammar.ok()) {
    walk(**grammar, choices);
  } else {
    require(grammar.error().code == ErrorCode::kInvalidArgument && !grammar.error().message.empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > 4096) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] & 1) {
    compile_and_walk(text, text);
  } else if (auto gbnf = json_schema_gbnf(text); gbnf.ok()) {
    compile_and_walk(*gbnf, text);
  } else {
    require(gbnf.error().code == ErrorCode::kInvalidArgument && !gbnf.error().message.empty());
  }
  compile_and_walk("root ::= " + gbnf_literal(text), text);
  return 0;
}
