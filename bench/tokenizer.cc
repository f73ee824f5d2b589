// Tokenizer speed. FATHOM_TOKENIZER names a tokenizer.json and FATHOM_TEXT a text; the defaults are read
// from the current folder, which should be the repository's.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <optional>

#include "base/file.h"
#include "text/engram_map.h"
#include "text/tokenizer.h"

namespace {

using namespace fathom;

std::string setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}
std::string tokenizer_path() { return setting("FATHOM_TOKENIZER", "models/mini/tokenizer.json"); }
std::string read_text() {
  return read_text_file(setting("FATHOM_TEXT", "src/text/unicode_tables.cc"), uint64_t{1} << 30).value();
}

void load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::load(tokenizer_path()).value());
}
BENCHMARK(load)->Unit(benchmark::kMillisecond);

// A fresh tokenizer a round: no word has been seen before.
void encode_cold(benchmark::State& state) {
  const std::string text = read_text();
  for (auto _ : state) {
    state.PauseTiming();
    std::optional<Tokenizer> tokenizer = Tokenizer::load(tokenizer_path()).value();
    state.ResumeTiming();
    benchmark::DoNotOptimize(tokenizer->encode(text));
    state.PauseTiming();
    tokenizer.reset();
    state.ResumeTiming();
  }
  state.SetBytesProcessed(state.iterations() * text.size());
}
BENCHMARK(encode_cold)->Unit(benchmark::kMillisecond);

void encode_warm(benchmark::State& state) {
  const std::string text = read_text();
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_path()).value();
  size_t tokens = 0;
  for (auto _ : state) tokens = tokenizer.encode(text).size();
  state.SetBytesProcessed(state.iterations() * text.size());
  state.counters["tokens"] = static_cast<double>(tokens);
}
BENCHMARK(encode_warm)->Unit(benchmark::kMillisecond);

void encode_with_special(benchmark::State& state) {
  const std::string text = read_text();
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_path()).value();
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode_with_special(text));
  state.SetBytesProcessed(state.iterations() * text.size());
}
BENCHMARK(encode_with_special)->Unit(benchmark::kMillisecond);

void encode_one_long_run(benchmark::State& state) {
  const std::string text(1 << 20, 'a');
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_path()).value();
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(text));
}
BENCHMARK(encode_one_long_run)->Unit(benchmark::kMillisecond);

void engram_token_map(benchmark::State& state) {
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_path()).value();
  for (auto _ : state) benchmark::DoNotOptimize(build_engram_token_map(tokenizer, tokenizer.vocab_size()));
}
BENCHMARK(engram_token_map)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
