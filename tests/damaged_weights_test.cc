// Weights that no arithmetic survives: wherever one is planted, the run ends with a line that names it.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cpu/backend.h"
#include "golden_model.h"
#include "ops/reference/backend.h"

namespace fathom::testing {
namespace {

namespace fs = std::filesystem;

class DamagedWeights : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("fathom_damaged_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    for (const char* name : {"config.json", "model.safetensors"})
      fs::copy_file(data_path(std::string("golden/g3_candidate_engram/") + name), folder_ / name,
                    fs::copy_options::overwrite_existing);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Overwrites bytes of a tensor from its middle on.
  void plant(const std::string& tensor, std::vector<uint8_t> bytes, bool everywhere) {
    const TensorFiles files = unwrap(open_safetensors((folder_ / "model.safetensors").string()));
    const TensorEntry* entry = files.find(tensor);
    ASSERT_NE(entry, nullptr) << tensor;
    std::fstream file(folder_ / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    const uint64_t middle = entry->size_bytes / 2 / bytes.size() * bytes.size();
    for (uint64_t at = everywhere ? 0 : middle; at < (everywhere ? entry->size_bytes : middle + 1); at += bytes.size()) {
      file.seekp(static_cast<std::streamoff>(entry->offset_bytes + at));
      file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }

  // Loads and evaluates the golden text; the first error, if any.
  Result<void> run(Numerics numerics) {
    const GoldenFile golden(data_path("golden/g3_candidate_engram/golden.safetensors"));
    auto backend = unwrap(make_cpu_backend({.thread_count = 2}));
    ModelOptions options{.numerics = numerics};
    options.engram_token_map = golden.ints("inputs/engram_token_map");
    FATHOM_ASSIGN(Pack pack, open_pack(folder_.string()));
    FATHOM_ASSIGN(auto model, Model::load(std::move(pack), *backend, std::move(options)));
    auto state = unwrap(model->new_state(200));
    const std::vector<int32_t> tokens = golden.ints("inputs/ids_prefill");
    std::vector<float> logits(tokens.size() * static_cast<size_t>(model->config().vocab_size));
    const Segment segment{.state = state.get(), .tokens = tokens, .logits = LogitRows::kAll,
                          .logits_out = logits.data(), .next_tokens = {}};
    const Result<void> outcome = model->run({&segment, 1});
    EXPECT_TRUE(outcome.ok() || state->position() == 0);
    return outcome;
  }

  fs::path folder_;
};

TEST_P(DamagedWeights, AreNamed) {
  const std::string tensor = GetParam();
  const bool is_scale = tensor.ends_with(".scale");
  const bool is_expert = tensor.find(".experts.") != std::string::npos;
  const TensorFiles files = unwrap(open_safetensors((folder_ / "model.safetensors").string()));
  const DType type = *files.find(tensor)->type;
  std::vector<uint8_t> nan = {0xFF};
  if (type == DType::kBF16) nan = {0xC0, 0x7F};
  if (type == DType::kF32) nan = {0, 0, 0xC0, 0x7F};
  plant(tensor, nan, is_expert);
  for (const Numerics numerics : {Numerics::kExact, Numerics::kOfficial}) {
    const Result<void> outcome = run(numerics);
    ASSERT_FALSE(outcome.ok()) << tensor;
    EXPECT_EQ(outcome.error().code, ErrorCode::kBadPack) << outcome.error().message;
    const std::string name = is_scale ? tensor.substr(0, tensor.size() - 6) : tensor;
    EXPECT_NE(outcome.error().message.find(name), std::string::npos) << outcome.error().message;
    EXPECT_NE(outcome.error().message.find("model.safetensors"), std::string::npos) << outcome.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Everywhere, DamagedWeights,
    ::testing::Values("layers.0.attn.wq_a.scale", "layers.1.attn.wq_b.weight", "layers.2.attn.wkv.scale",
                      "layers.3.attn.wo_a.weight", "layers.5.attn.wo_b.scale", "layers.1.hc_attn_fn",
                      "layers.2.hc_ffn_base", "layers.3.hc_attn_scale", "layers.0.attn.attn_sink",
                      "layers.2.attn_norm.weight", "layers.1.attn.compressor.wkv.weight",
                      "layers.1.attn.compressor.wgate.weight", "layers.3.attn.indexer.wk.weight",
                      "layers.4.attn.indexer.wq_b.scale", "layers.5.attn.indexer.weights_proj.weight",
                      "layers.2.ffn.gate.weight", "layers.2.ffn.gate.bias",
                      "layers.4.ffn.shared_experts.w2.scale", "layers.1.ffn.experts.0.w1.scale",
                      "layers.1.engram.wkv.scale", "layers.2.engram.q_weight", "norm.weight",
                      "head.weight"),
    [](const auto& test) {
      std::string name = test.param;
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

}  // namespace
}  // namespace fathom::testing
