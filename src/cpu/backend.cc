#include "cpu/backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cpu/work_sizes.h"

namespace fathom {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const cpu::Kernels* kernels, int thread_count)
      : pool_(thread_count), scratch_(static_cast<size_t>(pool_.thread_count())) {
    context_ = {.kernels = kernels,
                .pool = &pool_,
                .scratch = &scratch_,
                .floats = &floats_,
                .more_floats = &more_floats_,
                .outputs = &outputs_,
                .numbers = &numbers_,
                .more_numbers = &more_numbers_,
                .queries = &queries_,
                .prepared = &prepared_,
                .more_prepared = &more_prepared_};
  }

  Result<void> pin() { return pool_.pin(); }
  std::string description() const override {
    const int threads = pool_.thread_count();
    return fmt::format("cpu {}, {} thread{}", context_.kernels->name, threads, threads == 1 ? "" : "s");
  }
  bool supports(DType type) const override {
    switch (type) {
      case DType::kF64:
      case DType::kI8:
      case DType::kU8:
      case DType::kI16:
      case DType::kU16:
      case DType::kI32:
      case DType::kU32:
      case DType::kI64:
      case DType::kU64:
      case DType::kBool:
      case DType::kF8E4M3:
      case DType::kF8E8M0:
      case DType::kEngramRow264:
      case DType::kEngramRow136: return false;
      default: return true;
    }
  }

  int64_t working_bytes(const WorkShape& shape) const override {
    return cpu::work_sizes(*context_.kernels, shape).bytes(pool_.thread_count());
  }
  Result<void> reserve(const WorkShape& shape) override {
    const cpu::WorkSizes sizes = cpu::work_sizes(*context_.kernels, shape);
    bool is_there = floats_.reserve(sizes.floats) && more_floats_.reserve(sizes.more_floats) &&
                    outputs_.reserve(sizes.outputs) && numbers_.reserve(sizes.numbers) &&
                    more_numbers_.reserve(sizes.more_numbers) && queries_.reserve(sizes.queries) &&
                    prepared_.reserve(sizes.prepared) && more_prepared_.reserve(sizes.more_prepared);
    for (cpu::Scratch& scratch : scratch_) is_there = is_there && scratch.reserve(sizes);
    if (is_there) return {};
    return Error::no_memory("cannot allocate {} bytes of working memory for steps of {} rows",
                            sizes.bytes(pool_.thread_count()), shape.rows);
  }
  int64_t held_bytes() const {
    int64_t bytes = floats_.size_bytes() + more_floats_.size_bytes() + outputs_.size_bytes() +
                    numbers_.size_bytes() + more_numbers_.size_bytes() + queries_.size_bytes() +
                    prepared_.size_bytes() + more_prepared_.size_bytes();
    for (const cpu::Scratch& scratch : scratch_) bytes += scratch.size_bytes();
    return bytes;
  }

  void* allocate(size_t bytes) override { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); }
  void release(void* memory) override { std::free(memory); }
  void upload(void* to, const void* from, size_t bytes) override {
    if (bytes != 0) std::memcpy(to, from, bytes);  // both may be null then
  }
  void download(void* to, const void* from, size_t bytes) override {
    if (bytes != 0) std::memcpy(to, from, bytes);  // both may be null then
  }

  void embed_tokens(const EmbedTokensArgs& args) override { cpu::embed_tokens(context_, args); }
  void hyper_mix(const HyperMixArgs& args) override { cpu::hyper_mix(context_, args); }
  void hyper_read(const HyperReadArgs& args) override { cpu::hyper_read(context_, args); }
  void hyper_write(const HyperWriteArgs& args) override { cpu::hyper_write(context_, args); }
  void rms_norm(const RmsNormArgs& args) override { cpu::rms_norm(context_, args); }
  void quantize_activations(const QuantizeActivationsArgs& args) override {
    cpu::quantize_activations(context_, args);
  }
  void linear(const LinearArgs& args) override {
    cpu::grouped_linear(context_, {.in = args.in,
                                   .weight = args.weight,
                                   .rows = args.rows,
                                   .groups = 1,
                                   .out = args.out,
                                   .round_to_bf16 = args.round_to_bf16,
                                   .inputs_are_bf16 = args.inputs_are_bf16});
  }
  void grouped_linear(const GroupedLinearArgs& args) override { cpu::grouped_linear(context_, args); }
  void rope_angles(const RopeAnglesArgs& args) override { cpu::rope_angles(context_, args); }
  void rope(const RopeArgs& args) override { cpu::rope(context_, args); }
  void store_kv(const StoreKvArgs& args) override { cpu::store_kv(context_, args); }
  void fake_quantize(const FakeQuantizeArgs& args) override { cpu::fake_quantize(context_, args); }
  void compress_pair(const CompressPairArgs& args) override { cpu::compress_pair(context_, args); }
  void copy_rows(const CopyRowsArgs& args) override { cpu::copy_rows(context_, args); }
  void index_select(const IndexSelectArgs& args) override { cpu::index_select(context_, args); }
  void sparse_attention(const SparseAttentionArgs& args) override { cpu::sparse_attention(context_, args); }
  void route(const RouteArgs& args) override { cpu::route(context_, args); }
  void expert_ffn(const ExpertFfnArgs& args) override { cpu::expert_ffn(context_, args); }
  void engram_write(const EngramWriteArgs& args) override { cpu::engram_write(context_, args); }

 private:
  ThreadPool pool_;
  std::vector<cpu::Scratch> scratch_;
  cpu::Buffer<float> floats_;
  cpu::Buffer<float> more_floats_;
  cpu::Buffer<float*> outputs_;
  cpu::Buffer<int32_t> numbers_;
  cpu::Buffer<int32_t> more_numbers_;
  cpu::Buffer<cpu::Fp4Query> queries_;
  cpu::Buffer<uint8_t> prepared_;
  cpu::Buffer<uint8_t> more_prepared_;
  cpu::Context context_;
};

}  // namespace

namespace cpu {

void run_tasks(const Context& context, int64_t count, int64_t work, FunctionRef<void(int64_t, int)> task) {
  // Waking a thread that has gone to sleep costs some 5 us, about as much as this many operations.
  constexpr int64_t kWorkWorthWaking = 50'000;
  if (work < kWorkWorthWaking) {
    for (int64_t index = 0; index < count; ++index) task(index, 0);
    return;
  }
  context.pool->run(count, task);
}

void run_rows(const Context& context, int64_t rows, int64_t row_work, FunctionRef<void(int64_t, int)> task) {
  const int64_t runs = std::min<int64_t>(rows, int64_t{4} * context.thread_count());
  run_tasks(context, runs, rows * row_work, [&](int64_t run, int thread) {
    for (int64_t row = rows * run / runs; row < rows * (run + 1) / runs; ++row) task(row, thread);
  });
}

}  // namespace cpu

int64_t cpu_working_bytes_held(const Backend& backend) {
  return dynamic_cast<const CpuBackend&>(backend).held_bytes();
}

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options) {
  constexpr int kMostThreads = 1024;
  if (options.thread_count < 0 || options.thread_count > kMostThreads)
    return Error::invalid("cpu thread count: found {}, expected 0 to {}", options.thread_count, kMostThreads);
  FATHOM_ASSIGN(const cpu::Kernels* kernels, cpu::select_kernels(options.isa));
  auto backend = std::make_unique<CpuBackend>(kernels, options.thread_count);
  if (options.pin) FATHOM_TRY(backend->pin());
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace fathom
