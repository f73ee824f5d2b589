// The definition of every operation: plain float32 loops, no cleverness, one file each.
#pragma once

#include <memory>

#include "ops/backend.h"

namespace fathom::reference {

/// A backend that runs on the calling thread. Slow; the oracle of the others.
class ReferenceBackend final : public Backend {
 public:
  std::string description() const override { return "reference"; }
  bool supports(DType type) const override;
  int64_t working_bytes(const WorkShape& shape) const override;
  Result<void> reserve(const WorkShape& shape) override;
  void* allocate(size_t bytes) override;
  void release(void* memory) override;
  void upload(void* to, const void* from, size_t bytes) override;
  void download(void* to, const void* from, size_t bytes) override;

  void embed_tokens(const EmbedTokensArgs&) override;
  void hyper_mix(const HyperMixArgs&) override;
  void hyper_read(const HyperReadArgs&) override;
  void hyper_write(const HyperWriteArgs&) override;
  void rms_norm(const RmsNormArgs&) override;
  void quantize_activations(const QuantizeActivationsArgs&) override;
  void linear(const LinearArgs&) override;
  void grouped_linear(const GroupedLinearArgs&) override;
  void rope_angles(const RopeAnglesArgs&) override;
  void rope(const RopeArgs&) override;
  void store_kv(const StoreKvArgs&) override;
  void fake_quantize(const FakeQuantizeArgs&) override;
  void compress_pair(const CompressPairArgs&) override;
  void copy_rows(const CopyRowsArgs&) override;
  void index_select(const IndexSelectArgs&) override;
  void sparse_attention(const SparseAttentionArgs&) override;
  void route(const RouteArgs&) override;
  void expert_ffn(const ExpertFfnArgs&) override;
  void engram_write(const EngramWriteArgs&) override;
};

/// Dot product the way every reference matrix product sums: 32 products, then their sum to the total, so
/// that a block of one quantisation scale is summed on its own as in the published kernels.
float dot(const float* a, const float* b, int64_t count);

float sigmoid(float x);

/// A value that sorting can order: a NaN, which only damaged activations hold, counts as the least.
float orderable(float x);

}  // namespace fathom::reference
