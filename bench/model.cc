// The embedded model on the CPU backend: tokens a second, and where the time of a step goes (microseconds a
// step by operation). bench_model [--model=DIR], then the flags of Google Benchmark.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "cpu/backend.h"
#include "model/model.h"
#include "text/engram_map.h"
#include "text/tokenizer.h"

namespace {

using namespace fathom;

std::string model_path = "models/mini";

/// Passes every operation on and adds up its time.
class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}
  std::string description() const override { return backend_->description(); }
  bool supports(DType type) const override { return backend_->supports(type); }
  int64_t working_bytes(const WorkShape& shape) const override { return backend_->working_bytes(shape); }
  Result<void> reserve(const WorkShape& shape) override { return backend_->reserve(shape); }
  void* allocate(size_t bytes) override { return backend_->allocate(bytes); }
  void release(void* memory) override { backend_->release(memory); }
  void upload(void* to, const void* from, size_t bytes) override { backend_->upload(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { backend_->download(to, from, bytes); }
#define FATHOM_TIMED(operation, Args)                                                                       \
  void operation(const Args& args) override {                                                               \
    const auto begin = std::chrono::steady_clock::now();                                                    \
    backend_->operation(args);                                                                              \
    seconds[#operation] += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); \
  }
  FATHOM_TIMED(embed_tokens, EmbedTokensArgs)
  FATHOM_TIMED(hyper_mix, HyperMixArgs)
  FATHOM_TIMED(hyper_read, HyperReadArgs)
  FATHOM_TIMED(hyper_write, HyperWriteArgs)
  FATHOM_TIMED(rms_norm, RmsNormArgs)
  FATHOM_TIMED(quantize_activations, QuantizeActivationsArgs)
  FATHOM_TIMED(linear, LinearArgs)
  FATHOM_TIMED(grouped_linear, GroupedLinearArgs)
  FATHOM_TIMED(rope_angles, RopeAnglesArgs)
  FATHOM_TIMED(rope, RopeArgs)
  FATHOM_TIMED(store_kv, StoreKvArgs)
  FATHOM_TIMED(fake_quantize, FakeQuantizeArgs)
  FATHOM_TIMED(compress_pair, CompressPairArgs)
  FATHOM_TIMED(copy_rows, CopyRowsArgs)
  FATHOM_TIMED(index_select, IndexSelectArgs)
  FATHOM_TIMED(sparse_attention, SparseAttentionArgs)
  FATHOM_TIMED(route, RouteArgs)
  FATHOM_TIMED(expert_ffn, ExpertFfnArgs)
  FATHOM_TIMED(engram_write, EngramWriteArgs)
#undef FATHOM_TIMED

  std::map<std::string, double> seconds;

 private:
  std::unique_ptr<Backend> backend_;
};

template <class T>
T unwrap(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  fmt::print(stderr, "{}\n", result.error().message);
  std::exit(1);
}

struct Loaded {
  TimedBackend backend;
  std::unique_ptr<Model> model;

  explicit Loaded(int thread_count) : backend(unwrap(make_cpu_backend({.thread_count = thread_count}))) {
    const Tokenizer tokenizer = unwrap(Tokenizer::load(model_path + "/tokenizer.json"));
    ModelOptions options;
    Pack pack = unwrap(open_pack(model_path));
    options.engram_token_map = build_engram_token_map(tokenizer, pack.config().vocab_size).ids;
    model = unwrap(Model::load(std::move(pack), backend, std::move(options)));
  }

  /// Evaluates `count` tokens of no meaning.
  void eval(SequenceState& state, int count, bool is_last, float* logits) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int at = 0; at < count; ++at)
      tokens[static_cast<size_t>(at)] =
          static_cast<int32_t>((state.position() + at) * 2654435761u % 7919 + 100);
    const Segment segment{.state = &state,
                          .tokens = tokens,
                          .is_last_chunk = is_last,
                          .logits = is_last ? LogitRows::kLast : LogitRows::kNone,
                          .logits_out = logits,
                          .next_tokens = {}};
    if (auto result = model->run({&segment, 1}); !result.ok()) {
      fmt::print(stderr, "{}\n", result.error().message);
      std::exit(1);
    }
  }
};

// Arguments: tokens before, tokens a step, threads.
void step(benchmark::State& state) {
  const int before = static_cast<int>(state.range(0));
  const int rows = static_cast<int>(state.range(1));
  Loaded loaded(static_cast<int>(state.range(2)));
  std::vector<float> logits(static_cast<size_t>(loaded.model->config().vocab_size));
  std::unique_ptr<SequenceState> sequence;
  const auto begin_again = [&] {
    sequence = unwrap(loaded.model->new_state(8192));
    for (int done = 0; done < before; done += 256)
      loaded.eval(*sequence, 256, done + 256 >= before, logits.data());
    loaded.backend.seconds.clear();
  };
  begin_again();
  loaded.eval(*sequence, rows, true, logits.data());
  loaded.backend.seconds.clear();
  int64_t counted = 0;
  double best = 1e9;  // the only number to trust on a machine with other work
  for (auto _ : state) {
    if (sequence->position() + rows > 8192) {
      state.PauseTiming();
      begin_again();
      counted = 0;
      state.ResumeTiming();
    }
    const auto begin = std::chrono::steady_clock::now();
    loaded.eval(*sequence, rows, true, logits.data());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    ++counted;
  }
  for (const auto& [name, seconds] : loaded.backend.seconds)
    state.counters[name] = seconds * 1e6 / static_cast<double>(counted);
  state.counters["best"] = best * 1e6;
  state.SetItemsProcessed(state.iterations() * rows);
}
BENCHMARK(step)->ArgsProduct({{256}, {1, 6, 256}, {1, 2}})->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
  constexpr std::string_view kFlag = "--model=";
  if (argc > 1 && std::string_view(argv[1]).starts_with(kFlag)) {
    model_path = std::string_view(argv[1]).substr(kFlag.size());
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
