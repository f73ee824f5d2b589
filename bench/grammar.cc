// Token masks: what a step of a constrained answer adds. FATHOM_TOKENIZER names a tokenizer.json; without it
// a made-up vocabulary of 129,280 tokens is used, in which words, spaces, marks and JSON's pieces are mixed.
#include "grammar/grammar.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <random>
#include <set>

#include "text/tokenizer.h"

namespace {

using namespace fathom;

constexpr size_t kVocabulary = 129'280;

struct Words {
  std::vector<std::string> tokens;
  std::vector<int32_t> end_ids;
};

Words made_up() {
  std::mt19937 random(1);
  std::set<std::string> words;
  Words made;
  for (int byte = 0; byte < 256; ++byte) made.tokens.push_back(std::string(1, static_cast<char>(byte)));
  const std::vector<std::string> ends = {"",    "",    "",  "",  "",  "",  "\"", "\",",
                                         "\":", "\"}", "(", ")", ",", ".", ":",  "();\n"};
  const std::vector<std::string> starts = {"",   " ",        " ",        "\"",  " \"", "_",
                                           "\n", "\xE6\x97", "\xC3\xA9", "{\"", "    "};
  while (made.tokens.size() < kVocabulary - 1) {
    std::string word = starts[random() % starts.size()];
    for (size_t k = 0, length = 1 + random() % 9; k < length; ++k)
      word += static_cast<char>('a' + random() % 26);
    word += ends[random() % ends.size()];
    if (word.size() > 1 && words.insert(word).second) made.tokens.push_back(word);
  }
  made.end_ids = {static_cast<int32_t>(made.tokens.size())};
  made.tokens.push_back("");
  return made;
}

const Words& words() {
  static const Words loaded = [] {
    const char* path = std::getenv("FATHOM_TOKENIZER");
    if (path == nullptr) return made_up();
    const Tokenizer tokenizer = Tokenizer::load(path).value();
    Words read;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
      read.tokens.push_back(tokenizer.is_special(id) ? std::string()
                                                     : std::string(tokenizer.token_bytes(id)));
    read.end_ids = {1};
    return read;
  }();
  return loaded;
}

std::shared_ptr<const GrammarVocabulary> vocabulary() {
  static const auto made = GrammarVocabulary::make(words().tokens, words().end_ids);
  return made;
}

std::string object_gbnf() { return json_object_gbnf(); }
std::string schema_gbnf() {
  return json_schema_gbnf(
             R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,
      "maximum":150},"tags":{"type":"array","items":{"type":"string","maxLength":20}},
           "home":{"type":"object","properties":{
      "street":{"type":"string"},"zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["street","zip"],
      "additionalProperties":false}},"required":["name","age"],"additionalProperties":false})")
      .value();
}
std::string free_gbnf() { return "root ::= .*"; }

void vocabulary_trie(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(GrammarVocabulary::make(words().tokens, words().end_ids));
}
BENCHMARK(vocabulary_trie)->Unit(benchmark::kMillisecond);

void compile(benchmark::State& state, std::string (*gbnf)()) {
  const std::string text = gbnf();
  vocabulary();
  for (auto _ : state) benchmark::DoNotOptimize(compile_gbnf(text, vocabulary()).value());
}
BENCHMARK_CAPTURE(compile, object, object_gbnf)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile, schema, schema_gbnf)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile, free, free_gbnf)->Unit(benchmark::kMillisecond);

// The mask behind a text. First: in an answer that has not been there before, with a grammar that others have
// used; again: a place that the answer knows.
void mask(benchmark::State& state, std::string (*gbnf)(), const char* text, bool again) {
  const auto grammar = compile_gbnf(gbnf(), vocabulary()).value();
  std::vector<uint64_t> bits((words().tokens.size() + 63) / 64);
  const auto walk = [&] {
    std::unique_ptr<TokenMask> walker = grammar->new_mask();
    for (const char* byte = text; *byte; ++byte) {
      for (int32_t id = 0;; ++id)
        if (words().tokens[static_cast<size_t>(id)] == std::string(1, *byte)) {
          walker->accept(id);
          break;
        }
    }
    return walker;
  };
  std::unique_ptr<TokenMask> walker = walk();
  walker->restrict(bits);
  int64_t allowed = 0;
  for (auto _ : state) {
    if (!again) {
      state.PauseTiming();
      walker = walk();
      state.ResumeTiming();
    }
    std::fill(bits.begin(), bits.end(), ~uint64_t{0});
    walker->restrict(bits);
    benchmark::DoNotOptimize(bits.data());
  }
  for (const uint64_t word : bits) allowed += __builtin_popcountll(word);
  state.counters["allowed"] = static_cast<double>(allowed);
}
BENCHMARK_CAPTURE(mask, object_start_first, object_gbnf, "", false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(mask, object_start_again, object_gbnf, "", true)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(mask, string_first, object_gbnf, "{\"key\": \"some text", false)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(mask, string_again, object_gbnf, "{\"key\": \"some text", true)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(mask, value_first, object_gbnf, "{\"key\":", false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(mask, schema_key_first, schema_gbnf, "{\"name\":\"x\",", false)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(mask, schema_bounded_string_first, schema_gbnf, "{\"name\":\"x\",\"age\":1,\"tags\":[\"abc",
                  false)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(mask, free_first, free_gbnf, "some text", false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(mask, free_again, free_gbnf, "some text", true)->Unit(benchmark::kMicrosecond);

// Of this thread: other work on the machine would be the slowest step.
double now_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

// Whole random answers, token by token, accept and mask together: how long the median and the slowest step
// take.
void answer(benchmark::State& state, std::string (*gbnf)()) {
  const std::string text = gbnf();
  std::vector<double> step_us;
  std::vector<uint64_t> bits((words().tokens.size() + 63) / 64);
  std::mt19937 random(5);
  for (auto _ : state) {
    state.PauseTiming();
    const auto grammar = compile_gbnf(text, vocabulary()).value();
    state.ResumeTiming();
    const std::unique_ptr<TokenMask> walker = grammar->new_mask();
    for (int step = 0; step < 300; ++step) {
      const double before_us = now_us();
      std::fill(bits.begin(), bits.end(), ~uint64_t{0});
      walker->restrict(bits);
      const double masked_us = now_us();
      std::vector<int32_t> ids;
      for (size_t id = 0; id < words().tokens.size(); ++id)
        if ((bits[id / 64] >> (id % 64) & 1) != 0) ids.push_back(static_cast<int32_t>(id));
      const int32_t id = ids[random() % ids.size()];
      if (id == words().end_ids[0]) break;
      const double chosen_us = now_us();
      walker->accept(id);
      step_us.push_back(masked_us - before_us + now_us() - chosen_us);
    }
  }
  std::sort(step_us.begin(), step_us.end());
  state.counters["median_us"] = step_us[step_us.size() / 2];
  state.counters["p99_us"] = step_us[step_us.size() * 99 / 100];
  state.counters["worst_us"] = step_us.back();
}
BENCHMARK_CAPTURE(answer, object, object_gbnf)->Unit(benchmark::kMillisecond)->Iterations(40);
BENCHMARK_CAPTURE(answer, schema, schema_gbnf)->Unit(benchmark::kMillisecond)->Iterations(40);

}  // namespace

BENCHMARK_MAIN();
