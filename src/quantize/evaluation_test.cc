#include "quantize/evaluation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/sampler.h"
#include "format/test_files.h"
#include "ops/reference/backend.h"

namespace fathom {
namespace {

using Ids = std::vector<int32_t>;

template <class T>
T unwrap(Result<T> result) {
  FATHOM_CHECK(result.ok(), "{}", result.error().message);
  return std::move(result).value();
}

Ids text(int64_t count) {
  Ids ids;
  for (int64_t position = 0; position < count; ++position)
    ids.push_back(static_cast<int32_t>(3 + position * 37 % 290));
  return ids;
}

// ---- Windows ----

std::vector<std::array<size_t, 3>> cut(const Ids& ids, const WindowOptions& options) {
  std::vector<std::array<size_t, 3>> windows;
  for (const TextWindow& window : unwrap(cut_windows(ids, options)))
    windows.push_back({window.begin, window.end, window.first_target});
  return windows;
}

using Windows = std::vector<std::array<size_t, 3>>;

TEST(CutWindows, PredictEveryTokenOnce) {
  EXPECT_EQ(cut(text(10), {.context_tokens = 20}), (Windows{{0, 10, 1}}));
  EXPECT_EQ(cut(text(10), {.context_tokens = 4}), (Windows{{0, 4, 1}, {4, 8, 5}, {8, 10, 9}}));
  // Overlapping: the second half of each window is predicted.
  EXPECT_EQ(cut(text(9), {.context_tokens = 4, .stride_tokens = 2}),
            (Windows{{0, 4, 1}, {2, 6, 4}, {4, 8, 6}, {6, 9, 8}}));
  // A BOS before every window takes a place and makes its first token predictable.
  EXPECT_EQ(cut(text(7), {.context_tokens = 4, .bos_token = 0}), (Windows{{0, 3, 0}, {3, 6, 3}, {6, 7, 6}}));
}

TEST(CutWindows, BeginAnewAtDocuments) {
  const Ids ids = {0, 5, 6, 7, 0, 8, 0, 0, 9};
  EXPECT_EQ(cut(ids, {.context_tokens = 10, .bos_token = 0}), (Windows{{0, 4, 1}, {4, 6, 5}, {7, 9, 8}}));
  EXPECT_EQ(cut(ids, {.context_tokens = 3, .bos_token = 0}),
            (Windows{{0, 3, 1}, {3, 4, 3}, {4, 6, 5}, {7, 9, 8}}));
}

TEST(CutWindows, RefuseWhatHasNoMeaning) {
  EXPECT_FALSE(cut_windows(text(10), {.context_tokens = 1}).ok());
  EXPECT_FALSE(cut_windows(text(10), {.context_tokens = 4, .stride_tokens = 5}).ok());
  EXPECT_FALSE(cut_windows(text(1), {.context_tokens = 4}).ok());
  EXPECT_FALSE(cut_windows({}, {.context_tokens = 4, .bos_token = 0}).ok());
}

// ---- Models: the same weights in two arithmetics, which differ a little ----

struct TestModel {
  explicit TestModel(Numerics numerics)
      : model(unwrap(Model::load(unwrap(open_pack(FATHOM_SOURCE_DIR "/tests/data/golden/g2_select")), backend,
                                 {.numerics = numerics, .step_rows = 8}))),
        session(unwrap(Session::make(*model, {.context_tokens = 100, .checkpoint_bytes = 0}))) {}
  reference::ReferenceBackend backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<Session> session;
};

// Log-probabilities after each token of `ids`.
std::vector<std::vector<double>> all_logprobs(Session& session, std::span<const int32_t> ids) {
  std::vector<std::vector<double>> rows;
  session.invalidate();
  const auto keep = [&](int64_t, std::span<const float> logits) -> Result<void> {
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    std::vector<double> row;
    for (const float logit : logits) row.push_back(static_cast<double>(logit) - std::log(sum));
    rows.push_back(std::move(row));
    return {};
  };
  EXPECT_TRUE(session.evaluate(ids, keep).ok());
  return rows;
}

TEST(EvaluateText, OfAModelAgainstItselfIsZero) {
  TestModel a(Numerics::kOfficial), b(Numerics::kOfficial);
  const Quality quality = unwrap(
      evaluate_text(*a.session, text(60), {.windows = {.context_tokens = 25}, .reference = b.session.get()}));
  EXPECT_EQ(quality.tokens, 57);
  EXPECT_EQ(quality.windows, 3);
  EXPECT_EQ(quality.divergence_max, 0);
  EXPECT_EQ(quality.same_top.value, 1);
  EXPECT_EQ(quality.nll_difference.value, 0);
}

TEST(EvaluateText, EqualsADirectComputation) {
  TestModel a(Numerics::kOfficial), b(Numerics::kExact);
  const Ids ids = text(50);
  const Quality quality = unwrap(
      evaluate_text(*a.session, ids, {.windows = {.context_tokens = 30}, .reference = b.session.get()}));
  double nll = 0, divergence = 0, largest = 0, same = 0, change = 0;
  for (const auto& [begin, count] : {std::pair{0, 30}, {30, 20}}) {
    const auto window = std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    const auto q = all_logprobs(*a.session, window), p = all_logprobs(*b.session, window);
    for (size_t row = 0; row + 1 < window.size(); ++row) {
      const auto next = static_cast<size_t>(window[row + 1]);
      double one = 0;
      for (size_t id = 0; id < q[row].size(); ++id) one += std::exp(p[row][id]) * (p[row][id] - q[row][id]);
      divergence += one;
      largest = std::max(largest, one);
      nll -= q[row][next];
      change += std::exp(q[row][next]) - std::exp(p[row][next]);
      same += std::max_element(q[row].begin(), q[row].end()) - q[row].begin() ==
              std::max_element(p[row].begin(), p[row].end()) - p[row].begin();
    }
  }
  ASSERT_EQ(quality.tokens, 48);
  EXPECT_GT(divergence, 1e-6);
  EXPECT_NEAR(quality.divergence.value, divergence / 48, 1e-9);
  EXPECT_NEAR(quality.divergence_max, largest, 1e-9);
  EXPECT_NEAR(quality.nll.value, nll / 48, 1e-9);
  EXPECT_NEAR(quality.probability_difference.value, change / 48, 1e-9);
  EXPECT_NEAR(quality.same_top.value, same / 48, 1e-12);
}

TEST(EvaluateText, AgainstAFileIsAsAgainstTheModel) {
  const TemporaryFolder folder;
  const std::string path = folder.file("exact.ref");
  TestModel a(Numerics::kOfficial), b(Numerics::kExact);
  const Ids ids = text(50);
  const WindowOptions windows{.context_tokens = 20, .stride_tokens = 15, .bos_token = 0};
  unwrap(evaluate_text(*b.session, ids, {.windows = windows, .save_path = path}));
  const ReferenceReader stored = unwrap(ReferenceReader::open(path));
  EXPECT_EQ(stored.header().model, b.model->fingerprint());
  const Quality by_file = unwrap(evaluate_text(*a.session, ids, {.windows = windows, .stored = &stored}));
  const Quality by_model =
      unwrap(evaluate_text(*a.session, ids, {.windows = windows, .reference = b.session.get()}));
  EXPECT_EQ(by_file.tokens, 50);
  EXPECT_EQ(by_file.nll.value, by_model.nll.value);
  EXPECT_NEAR(by_file.divergence.value, by_model.divergence.value, 1e-6);
  EXPECT_NEAR(by_file.reference_nll.value, by_model.reference_nll.value, 1e-4);

  Ids other = ids;
  other[10] = 5;
  for (const auto& [tokens, context] : {std::pair{other, 20}, {ids, 21}, {text(49), 20}}) {
    const auto refused = evaluate_text(
        *a.session, tokens,
        {.windows = {.context_tokens = context, .stride_tokens = 15, .bos_token = 0}, .stored = &stored});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("another text"), std::string::npos) << refused.error().message;
  }
}

TEST(EvaluateText, StopsWhenAskedAndLeavesNoFile) {
  const TemporaryFolder folder;
  TestModel a(Numerics::kOfficial);
  const auto result = evaluate_text(*a.session, text(60),
                                    {.windows = {.context_tokens = 20},
                                     .save_path = folder.file("a.ref"),
                                     .progress = [](const Progress& now) { return now.done < 20; }});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace fathom
