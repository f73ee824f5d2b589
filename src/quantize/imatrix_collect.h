// Collects importance statistics while a model runs: a backend that passes every operation on and looks at
// what goes into the matrices. The forward pass does not know.
#pragma once

#include <memory>

#include "model/pack.h"
#include "ops/backend.h"
#include "quantize/imatrix.h"

namespace fathom {

/// `inner` must keep its memory where the program can read it (cpu, reference). Matrices are known by where
/// they lie in `pack`, which only has to live during make(); its views must stay where they are.
///
/// What counts as a row: a row of the step. For attn.wo_a every group of a row counts, since all of its rows
/// share one set of columns. For experts a row counts for those it was routed to: gate and up see the
/// normalised input, down the routed SwiGLU row, times its routing weight, that is, in official numerics the
/// very values that are multiplied. Hyper-connection matrices are left out: they are never quantised.
class ImportanceCollector final : public Backend {
 public:
  static Result<std::unique_ptr<ImportanceCollector>> make(std::unique_ptr<Backend> inner, const Pack& pack);
  ~ImportanceCollector() override;

  /// What was seen since make(). Matrices that nothing was multiplied with are left out.
  Result<ImportanceMatrix> result() const;

  std::string description() const override;
  bool supports(DType type) const override;
  int64_t working_bytes(const WorkShape& shape) const override;
  Result<void> reserve(const WorkShape& shape) override;
  void* allocate(size_t bytes) override;
  void release(void* memory) override;
  void upload(void* to, const void* from, size_t bytes) override;
  void download(void* to, const void* from, size_t bytes) override;
  void embed_tokens(const EmbedTokensArgs& args) override;
  void hyper_mix(const HyperMixArgs& args) override;
  void hyper_read(const HyperReadArgs& args) override;
  void hyper_write(const HyperWriteArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void quantize_activations(const QuantizeActivationsArgs& args) override;
  void linear(const LinearArgs& args) override;
  void grouped_linear(const GroupedLinearArgs& args) override;
  void rope_angles(const RopeAnglesArgs& args) override;
  void rope(const RopeArgs& args) override;
  void store_kv(const StoreKvArgs& args) override;
  void fake_quantize(const FakeQuantizeArgs& args) override;
  void compress_pair(const CompressPairArgs& args) override;
  void copy_rows(const CopyRowsArgs& args) override;
  void index_select(const IndexSelectArgs& args) override;
  void sparse_attention(const SparseAttentionArgs& args) override;
  void route(const RouteArgs& args) override;
  void expert_ffn(const ExpertFfnArgs& args) override;
  void engram_write(const EngramWriteArgs& args) override;

 private:
  struct State;
  explicit ImportanceCollector(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fathom
