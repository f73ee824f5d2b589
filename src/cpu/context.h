// What the operations of the CPU backend share: kernels, threads and working memory.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "ops/ops.h"

namespace fathom::cpu {

/// Memory that grows and is kept. The contents do not survive growth. Steps of a shape that was reserved do not
/// make it grow.
template <class T>
class Buffer {
 public:
  T* get(int64_t count) {
    FATHOM_CHECK(reserve(count), "cannot allocate {} bytes of working memory", count * int64_t{sizeof(T)});
    return data_.get();
  }
  /// False if there is no memory.
  bool reserve(int64_t count) {
    if (count <= size_) return true;
    data_.reset();
    size_ = 0;
    data_.reset(static_cast<T*>(
        ::operator new(static_cast<size_t>(count) * sizeof(T), kAlignment, std::nothrow)));
    if (data_ == nullptr) return false;
    size_ = count;
    return true;
  }
  int64_t size_bytes() const { return size_ * int64_t{sizeof(T)}; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

struct WorkSizes;

/// Of one thread.
struct Scratch {
  Buffer<float> panel;   // decoded weight or key rows
  Buffer<float> values;  // results of a tile on their way
  Buffer<float> more_values;
  Buffer<const float*> in;  // activation rows of a task
  Buffer<float*> task_out;  // and where its results go
  Buffer<float*> row_out;   // for one weight row
  Buffer<float*> out;       // for one panel
  Buffer<uint64_t> order;
  Buffer<int32_t> numbers;
  Buffer<int32_t> more_numbers;
  Buffer<uint8_t> units;  // decoded weight rows in bfloat16
  Buffer<const uint8_t*> prepared;  // activation rows of a task, prepared

  bool reserve(const WorkSizes& sizes);
  int64_t size_bytes() const;
};

struct Context {
  const Kernels* kernels;
  ThreadPool* pool;
  std::vector<Scratch>* scratch;  // one a thread of the pool
  Buffer<float>* floats;          // of the operation that runs, shared by its threads
  Buffer<float>* more_floats;
  Buffer<float*>* outputs;
  Buffer<int32_t>* numbers;
  Buffer<int32_t>* more_numbers;
  Buffer<Fp4Query>* queries;  // of the indexer
  Buffer<uint8_t>* prepared;  // activation rows as kernels.h, bf16_prepare, makes them
  Buffer<uint8_t>* more_prepared;

  Scratch& scratch_of(int thread) const { return (*scratch)[static_cast<size_t>(thread)]; }
  int thread_count() const { return pool->thread_count(); }
};

/// Scores that the indexer holds at a time, unless one row has more: 4 MB.
constexpr int64_t kIndexBatchScores = 1'000'000;

/// Runs task(index, thread) for [0, count): on all threads if `work` (in float operations, roughly) is worth
/// waking them, else here.
void run_tasks(const Context& context, int64_t count, int64_t work, FunctionRef<void(int64_t, int)> task);
/// The same for task(row, thread) with a run of neighbouring rows a task; `row_work` is the work of one.
void run_rows(const Context& context, int64_t rows, int64_t row_work, FunctionRef<void(int64_t, int)> task);

// One function an operation, each in the file of its name.
void embed_tokens(const Context&, const EmbedTokensArgs&);
void hyper_mix(const Context&, const HyperMixArgs&);
void hyper_read(const Context&, const HyperReadArgs&);
void hyper_write(const Context&, const HyperWriteArgs&);
void rms_norm(const Context&, const RmsNormArgs&);
void quantize_activations(const Context&, const QuantizeActivationsArgs&);
void grouped_linear(const Context&, const GroupedLinearArgs&);
void rope_angles(const Context&, const RopeAnglesArgs&);
void rope(const Context&, const RopeArgs&);
void store_kv(const Context&, const StoreKvArgs&);
void fake_quantize(const Context&, const FakeQuantizeArgs&);
void compress_pair(const Context&, const CompressPairArgs&);
void copy_rows(const Context&, const CopyRowsArgs&);
void index_select(const Context&, const IndexSelectArgs&);
void sparse_attention(const Context&, const SparseAttentionArgs&);
void route(const Context&, const RouteArgs&);
void expert_ffn(const Context&, const ExpertFfnArgs&);
void engram_write(const Context&, const EngramWriteArgs&);

}  // namespace fathom::cpu
