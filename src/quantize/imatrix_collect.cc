#include "quantize/imatrix_collect.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/float_types.h"
#include "model/tensor_shapes.h"

namespace fathom {
namespace {

// Sums of squares of the columns of one matrix's input, or of each expert's of a bank.
struct Sums {
  std::vector<std::string> names;  // matrices that share the input: an expert's gate and up
  int64_t experts = 0;
  int64_t cols = 0;
  std::vector<double> squares;  // [max(experts, 1), cols]
  std::vector<int64_t> rows;    // [max(experts, 1)]

  void add(int64_t expert, const float* values) {
    double* into = squares.data() + expert * cols;
    for (int64_t col = 0; col < cols; ++col)
      into[col] += static_cast<double>(values[col]) * static_cast<double>(values[col]);
    ++rows[static_cast<size_t>(expert)];
  }
};

struct BankSums {
  Sums* inputs = nullptr;  // of gate and up
  Sums* middle = nullptr;  // of down
};

}  // namespace

struct ImportanceCollector::State {
  std::unique_ptr<Backend> inner;
  std::vector<std::unique_ptr<Sums>> sums;
  std::unordered_map<const std::byte*, Sums*> matrices;    // by the first byte of the matrix
  std::unordered_map<const std::byte*, BankSums> experts;  // by the first byte of the first expert's gate
  std::string unknown;  // an error about a matrix that the pack does not have
  std::vector<float> gathered, gate, up;

  Sums* new_sums(std::vector<std::string> names, int64_t experts_count, int64_t cols) {
    const auto matrices_count = static_cast<size_t>(std::max<int64_t>(experts_count, 1));
    auto made = std::make_unique<Sums>();
    made->names = std::move(names);
    made->experts = experts_count;
    made->cols = cols;
    made->squares.assign(matrices_count * static_cast<size_t>(cols), 0.0);
    made->rows.assign(matrices_count, 0);
    sums.push_back(std::move(made));
    return sums.back().get();
  }

  void add_rows(const WeightMatrix& weight, const float* in, int64_t rows) {
    const auto found = matrices.find(weight.data);
    if (found == matrices.end()) {
      unknown = fmt::format("a matrix [{}, {}] that is multiplied with is not in the pack", weight.rows,
                            weight.cols);
      return;
    }
    for (int64_t row = 0; row < rows; ++row) found->second->add(0, in + row * weight.cols);
  }

  Result<void> add_matrices(const Pack& pack);
  void multiply_up(const ExpertFfnArgs& args, const ExpertWeights& weights, const float* in, int64_t rows,
                   const float* route_weights, bool quantize);
  void look_at_expert(const ExpertFfnArgs& args, int64_t expert, const std::vector<int64_t>& choices,
                      const BankSums& bank);
  void look_at_shared(const ExpertFfnArgs& args);
};

Result<void> ImportanceCollector::State::add_matrices(const Pack& pack) {
  for (const TensorShape& shape : backbone_shapes(pack.config())) {
    if (shape.is_vector || shape.name == "embed.weight" || shape.name.find(".hc_") != std::string::npos)
      continue;
    if (shape.experts == 0) {
      FATHOM_ASSIGN(const WeightMatrix matrix, pack.matrix(shape.name, shape.rows, shape.cols));
      matrices[matrix.data] = new_sums({shape.name}, 0, shape.cols);
      continue;
    }
    // Three banks a layer, of which gate and up are named first and last.
    constexpr std::string_view kGate = ".w1.weight";
    if (!shape.name.ends_with(kGate)) continue;
    const std::string stem = shape.name.substr(0, shape.name.size() - kGate.size());
    const std::string block = stem.substr(0, stem.find(".ffn."));
    FATHOM_ASSIGN(const WeightMatrix first, pack.expert_matrix(block, 0, "w1", shape.rows, shape.cols));
    experts[first.data] = {
        .inputs = new_sums({stem + ".w1.weight", stem + ".w3.weight"}, shape.experts, shape.cols),
        .middle = new_sums({stem + ".w2.weight"}, shape.experts, shape.rows)};
  }
  return {};
}

// The SwiGLU rows of `rows` rows that lie one after the other -> gate; the arithmetic of expert_ffn.
void ImportanceCollector::State::multiply_up(const ExpertFfnArgs& args, const ExpertWeights& weights,
                                             const float* in, int64_t rows, const float* route_weights,
                                             bool quantize) {
  const bool official = args.numerics == Numerics::kOfficial;
  gate.resize(static_cast<size_t>(rows * args.inter));
  up.resize(gate.size());
  inner->linear(
      {.in = in, .weight = &weights.gate, .rows = rows, .out = gate.data(), .round_to_bf16 = official});
  inner->linear({.in = in, .weight = &weights.up, .rows = rows, .out = up.data(), .round_to_bf16 = official});
  for (size_t index = 0; index < gate.size(); ++index) {
    const float g = std::min(gate[index], args.limit);
    const float u = std::clamp(up[index], -args.limit, args.limit);
    const float weight =
        route_weights == nullptr ? 1.0f : route_weights[index / static_cast<size_t>(args.inter)];
    const float value = weight * (g / (1.0f + std::exp(-g)) * u);
    gate[index] = official ? round_to_bf16(value) : value;
  }
  if (quantize)
    inner->quantize_activations({.in = gate.data(), .rows = rows, .width = args.inter, .out = gate.data()});
}

// `choices` index args.ids.
void ImportanceCollector::State::look_at_expert(const ExpertFfnArgs& args, int64_t expert,
                                                const std::vector<int64_t>& choices, const BankSums& bank) {
  std::vector<float> route_weights;
  gathered.clear();
  for (const int64_t choice : choices) {
    const float* row = args.in + choice / args.experts_per_token * args.dim;
    bank.inputs->add(expert, row);
    gathered.insert(gathered.end(), row, row + args.dim);
    route_weights.push_back(args.weights[choice]);
  }
  const auto rows = static_cast<int64_t>(choices.size());
  multiply_up(args, args.routed[expert], gathered.data(), rows, route_weights.data(), args.quantize_routed);
  for (int64_t row = 0; row < rows; ++row) bank.middle->add(expert, gate.data() + row * args.inter);
}

void ImportanceCollector::State::look_at_shared(const ExpertFfnArgs& args) {
  add_rows(args.shared->gate, args.shared_in, args.rows);
  add_rows(args.shared->up, args.shared_in, args.rows);
  multiply_up(args, *args.shared, args.shared_in, args.rows, nullptr, args.quantize_shared);
  add_rows(args.shared->down, gate.data(), args.rows);
}

Result<std::unique_ptr<ImportanceCollector>> ImportanceCollector::make(std::unique_ptr<Backend> inner,
                                                                       const Pack& pack) {
  auto state = std::make_unique<State>();
  state->inner = std::move(inner);
  FATHOM_TRY(state->add_matrices(pack));
  return std::unique_ptr<ImportanceCollector>(new ImportanceCollector(std::move(state)));
}

ImportanceCollector::ImportanceCollector(std::unique_ptr<State> state) : state_(std::move(state)) {}
ImportanceCollector::~ImportanceCollector() = default;

Result<ImportanceMatrix> ImportanceCollector::result() const {
  if (!state_->unknown.empty()) return Error::internal("importance: {}", state_->unknown);
  ImportanceMatrix importance;
  for (const auto& sums : state_->sums) {
    if (std::all_of(sums->rows.begin(), sums->rows.end(), [](int64_t rows) { return rows == 0; })) continue;
    ImportanceEntry entry{
        .experts = sums->experts, .cols = sums->cols, .mean_squares = {}, .rows = sums->rows};
    entry.mean_squares.reserve(sums->squares.size());
    for (size_t index = 0; index < sums->squares.size(); ++index) {
      const auto rows = static_cast<double>(sums->rows[index / static_cast<size_t>(sums->cols)]);
      entry.mean_squares.push_back(rows == 0 ? 0.0f : static_cast<float>(sums->squares[index] / rows));
    }
    for (const std::string& name : sums->names) FATHOM_TRY(importance.add(name, entry));
  }
  return importance;
}

// ---- Operations that are looked at ----

void ImportanceCollector::linear(const LinearArgs& args) {
  state_->inner->linear(args);
  state_->add_rows(*args.weight, args.in, args.rows);
}

void ImportanceCollector::grouped_linear(const GroupedLinearArgs& args) {
  state_->inner->grouped_linear(args);
  state_->add_rows(*args.weight, args.in, args.rows * args.groups);
}

void ImportanceCollector::expert_ffn(const ExpertFfnArgs& args) {
  state_->inner->expert_ffn(args);
  const auto found = state_->experts.find(args.routed->gate.data);
  if (found == state_->experts.end()) {
    state_->unknown = "a bank of experts is not in the pack";
    return;
  }
  std::vector<std::vector<int64_t>> choices(static_cast<size_t>(args.experts));
  for (int64_t choice = 0; choice < args.rows * args.experts_per_token; ++choice)
    choices[static_cast<size_t>(args.ids[choice])].push_back(choice);
  for (int64_t expert = 0; expert < args.experts; ++expert)
    if (const auto& chosen = choices[static_cast<size_t>(expert)]; !chosen.empty())
      state_->look_at_expert(args, expert, chosen, found->second);
  state_->look_at_shared(args);
}

// ---- Operations that are passed on ----

std::string ImportanceCollector::description() const { return state_->inner->description(); }
bool ImportanceCollector::supports(DType type) const { return state_->inner->supports(type); }
int64_t ImportanceCollector::working_bytes(const WorkShape& shape) const {
  return state_->inner->working_bytes(shape);
}
Result<void> ImportanceCollector::reserve(const WorkShape& shape) { return state_->inner->reserve(shape); }
void* ImportanceCollector::allocate(size_t bytes) { return state_->inner->allocate(bytes); }
void ImportanceCollector::release(void* memory) { state_->inner->release(memory); }
void ImportanceCollector::upload(void* to, const void* from, size_t bytes) {
  state_->inner->upload(to, from, bytes);
}
void ImportanceCollector::download(void* to, const void* from, size_t bytes) {
  state_->inner->download(to, from, bytes);
}
void ImportanceCollector::embed_tokens(const EmbedTokensArgs& args) { state_->inner->embed_tokens(args); }
void ImportanceCollector::hyper_mix(const HyperMixArgs& args) { state_->inner->hyper_mix(args); }
void ImportanceCollector::hyper_read(const HyperReadArgs& args) { state_->inner->hyper_read(args); }
void ImportanceCollector::hyper_write(const HyperWriteArgs& args) { state_->inner->hyper_write(args); }
void ImportanceCollector::rms_norm(const RmsNormArgs& args) { state_->inner->rms_norm(args); }
void ImportanceCollector::quantize_activations(const QuantizeActivationsArgs& args) {
  state_->inner->quantize_activations(args);
}
void ImportanceCollector::rope_angles(const RopeAnglesArgs& args) { state_->inner->rope_angles(args); }
void ImportanceCollector::rope(const RopeArgs& args) { state_->inner->rope(args); }
void ImportanceCollector::store_kv(const StoreKvArgs& args) { state_->inner->store_kv(args); }
void ImportanceCollector::fake_quantize(const FakeQuantizeArgs& args) { state_->inner->fake_quantize(args); }
void ImportanceCollector::compress_pair(const CompressPairArgs& args) { state_->inner->compress_pair(args); }
void ImportanceCollector::copy_rows(const CopyRowsArgs& args) { state_->inner->copy_rows(args); }
void ImportanceCollector::index_select(const IndexSelectArgs& args) { state_->inner->index_select(args); }
void ImportanceCollector::sparse_attention(const SparseAttentionArgs& args) {
  state_->inner->sparse_attention(args);
}
void ImportanceCollector::route(const RouteArgs& args) { state_->inner->route(args); }
void ImportanceCollector::engram_write(const EngramWriteArgs& args) { state_->inner->engram_write(args); }

}  // namespace fathom
