#include "quantize/imatrix_collect.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/session.h"
#include "model/test_packs.h"
#include "ops/reference/backend.h"

namespace fathom {
namespace {

template <class T>
T unwrap(Result<T> result) {
  FATHOM_CHECK(result.ok(), "{}", result.error().message);
  return std::move(result).value();
}

// In exact numerics nothing is quantised on its way into a matrix, so the probe sees what goes in.
TEST(ImportanceCollector, AddsUpWhatTheProbeSees) {
  Pack pack = unwrap(open_pack(golden_folder("g2_select")));
  const ModelConfig config = pack.config();
  const auto collector =
      unwrap(ImportanceCollector::make(std::make_unique<reference::ReferenceBackend>(), pack));
  const auto model =
      unwrap(Model::load(std::move(pack), *collector, {.numerics = Numerics::kExact, .step_rows = 8}));
  const auto session = unwrap(Session::make(*model, {.context_tokens = 60, .checkpoint_bytes = 0}));
  std::vector<double> head(static_cast<size_t>(config.hidden_size));
  std::vector<int64_t> chosen(static_cast<size_t>(config.routed_experts));
  model->set_probe([&](const ProbeEvent& event) {
    if (event.name == "final_norm") {
      const auto* values = static_cast<const float*>(event.data);
      for (int64_t index = 0; index < event.rows * event.width; ++index)
        head[static_cast<size_t>(index % event.width)] += static_cast<double>(values[index]) * values[index];
    }
    if (event.name == "router_ids" && event.layer == 2) {
      const auto* ids = static_cast<const int32_t*>(event.data);
      for (int64_t index = 0; index < event.rows * event.width; ++index)
        ++chosen[static_cast<size_t>(ids[index])];
    }
  });
  std::vector<int32_t> ids;
  for (int32_t position = 0; position < 50; ++position) ids.push_back(3 + position * 37 % 290);
  const auto ignore = [](int64_t, std::span<const float>) -> Result<void> { return {}; };
  ASSERT_TRUE(session->evaluate(ids, ignore).ok());

  const ImportanceMatrix importance = unwrap(collector->result());
  ASSERT_TRUE(importance.check_fits(config).ok());
  const auto of_head = importance.for_tensor("head.weight");
  ASSERT_EQ(of_head.size(), head.size());
  for (size_t col = 0; col < head.size(); ++col)
    EXPECT_FLOAT_EQ(of_head[col], static_cast<float>(head[col] / 50));

  // Gates and ups of the experts together see every router input once for each chosen expert.
  const ImportanceEntry& bank = importance.entries().at("layers.2.ffn.experts.w1.weight");
  EXPECT_EQ(bank.rows, chosen);
  const auto router = importance.for_tensor("layers.2.ffn.gate.weight");
  for (int64_t col = 0; col < config.hidden_size; ++col) {
    double sum = 0;
    for (int64_t expert = 0; expert < config.routed_experts; ++expert) {
      const auto index = static_cast<size_t>(expert * bank.cols + col);
      sum += bank.mean_squares[index] * static_cast<double>(bank.rows[static_cast<size_t>(expert)]);
    }
    EXPECT_NEAR(sum / 50 / config.experts_per_token / router[static_cast<size_t>(col)], 1, 1e-5);
  }
  EXPECT_EQ(importance.entries().at("layers.2.ffn.experts.w3.weight").mean_squares, bank.mean_squares);
  // Every group of a row goes into wo_a.
  EXPECT_EQ(importance.entries().at("layers.0.attn.wo_a.weight").rows[0], 50 * config.o_groups);
  EXPECT_FALSE(importance.entries().contains("embed.weight"));
}

// The rows in front of the down matrices, from decoded weights.
TEST(ImportanceCollector, SeesTheRoutedRowsInFrontOfDown) {
  const Pack pack = unwrap(open_pack(golden_folder("g2_select")));
  const ModelConfig& config = pack.config();
  const int64_t dim = config.hidden_size, inter = config.moe_intermediate_size;
  const auto collector =
      unwrap(ImportanceCollector::make(std::make_unique<reference::ReferenceBackend>(), pack));
  std::vector<ExpertWeights> experts(static_cast<size_t>(config.routed_experts));
  for (size_t expert = 0; expert < experts.size(); ++expert) {
    const auto id = static_cast<int64_t>(expert);
    experts[expert] = {.gate = unwrap(pack.expert_matrix("layers.1", id, "w1", inter, dim)),
                       .up = unwrap(pack.expert_matrix("layers.1", id, "w3", inter, dim)),
                       .down = unwrap(pack.expert_matrix("layers.1", id, "w2", dim, inter))};
  }
  const std::string shared_name = "layers.1.ffn.shared_experts.";
  const ExpertWeights shared = {.gate = unwrap(pack.matrix(shared_name + "w1.weight", inter, dim)),
                                .up = unwrap(pack.matrix(shared_name + "w3.weight", inter, dim)),
                                .down = unwrap(pack.matrix(shared_name + "w2.weight", dim, inter))};
  // Two rows; both choose expert 2.
  std::vector<float> in, out(static_cast<size_t>(2 * dim));
  for (int64_t index = 0; index < 2 * dim; ++index) in.push_back(std::sin(static_cast<float>(index)));
  const int32_t ids[] = {0, 2, 2, 3};
  const float weights[] = {0.5f, 1.25f, 0.75f, 1.0f};
  collector->expert_ffn({.in = in.data(),
                         .shared_in = in.data(),
                         .ids = ids,
                         .weights = weights,
                         .routed = experts.data(),
                         .shared = &shared,
                         .rows = 2,
                         .experts = config.routed_experts,
                         .experts_per_token = 2,
                         .dim = dim,
                         .inter = inter,
                         .limit = 10.0f,
                         .quantize_routed = false,
                         .quantize_shared = false,
                         .out = out.data(),
                         .numerics = Numerics::kExact});
  const ImportanceMatrix importance = unwrap(collector->result());

  const std::vector<float> gate = decode(experts[2].gate), up = decode(experts[2].up);
  const auto found = importance.for_tensor("layers.1.ffn.experts.w2.weight", 2);
  ASSERT_EQ(found.size(), static_cast<size_t>(inter));
  for (int64_t col = 0; col < inter; ++col) {
    double sum = 0;
    for (const auto& [row, weight] : {std::pair{0, 1.25}, {1, 0.75}}) {
      double g = 0, u = 0;
      for (int64_t k = 0; k < dim; ++k) {
        g += static_cast<double>(gate[static_cast<size_t>(col * dim + k)]) *
             in[static_cast<size_t>(row * dim + k)];
        u += static_cast<double>(up[static_cast<size_t>(col * dim + k)]) *
             in[static_cast<size_t>(row * dim + k)];
      }
      g = std::min(g, 10.0), u = std::clamp(u, -10.0, 10.0);
      const double value = weight * g / (1 + std::exp(-g)) * u;
      sum += value * value;
    }
    EXPECT_NEAR(found[static_cast<size_t>(col)], sum / 2, 1e-4 * sum + 1e-12);
  }
  EXPECT_EQ(importance.entries().at("layers.1.ffn.experts.w2.weight").rows[1], 0);
  EXPECT_EQ(importance.entries().at(shared_name + "w2.weight").rows[0], 2);
}

}  // namespace
}  // namespace fathom
