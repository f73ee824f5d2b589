// What every backend implements. ops/reference is the definition; the others are checked against it.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "ops/ops.h"
#include "ops/work_shape.h"

namespace fathom {

/// Operations run in the order they are called and see each other's results. One thread calls a backend at a
/// time. Nothing fails at run time: sizes and encodings are checked when a model is loaded
/// (`supports`), and what is left is a bug.
class Backend {
 public:
  virtual ~Backend() = default;

  /// One line for the log: what was chosen ("cpu avx512, 2 threads").
  virtual std::string description() const = 0;
  /// Whether `linear` and `expert_ffn` can read this encoding.
  virtual bool supports(DType type) const = 0;

  /// Bytes that operations hold beside what they are given, at most, in steps of this shape.
  virtual int64_t working_bytes(const WorkShape& shape) const = 0;
  /// Takes that memory, so that operations of such steps take none while they run. kNoMemory.
  virtual Result<void> reserve(const WorkShape& shape) = 0;

  /// Memory that operations may use, 64-byte aligned; null when there is none. The caller releases it.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  /// Copies between the caller's memory and the backend's.
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;

  virtual void embed_tokens(const EmbedTokensArgs&) = 0;
  virtual void hyper_mix(const HyperMixArgs&) = 0;
  virtual void hyper_read(const HyperReadArgs&) = 0;
  virtual void hyper_write(const HyperWriteArgs&) = 0;
  virtual void rms_norm(const RmsNormArgs&) = 0;
  virtual void quantize_activations(const QuantizeActivationsArgs&) = 0;
  virtual void linear(const LinearArgs&) = 0;
  virtual void grouped_linear(const GroupedLinearArgs&) = 0;
  virtual void rope_angles(const RopeAnglesArgs&) = 0;
  virtual void rope(const RopeArgs&) = 0;
  virtual void store_kv(const StoreKvArgs&) = 0;
  virtual void fake_quantize(const FakeQuantizeArgs&) = 0;
  virtual void compress_pair(const CompressPairArgs&) = 0;
  virtual void copy_rows(const CopyRowsArgs&) = 0;
  virtual void index_select(const IndexSelectArgs&) = 0;
  virtual void sparse_attention(const SparseAttentionArgs&) = 0;
  virtual void route(const RouteArgs&) = 0;
  virtual void expert_ffn(const ExpertFfnArgs&) = 0;
  virtual void engram_write(const EngramWriteArgs&) = 0;
};

}  // namespace fathom
