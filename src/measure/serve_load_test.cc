#include "measure/serve_load.h"

#include <gtest/gtest.h>

#include <cmath>

#include "measure/testing.h"

namespace fathom::measure {
namespace {

TEST(ServeLoad, ArrivalsArePoissonAndDependOnTheSeedOnly) {
  const ServeLoadSettings settings = {.users = 40, .requests_per_user = 250, .requests_per_s = 20};
  const auto arrivals = arrivals_of(settings);
  ASSERT_EQ(arrivals.size(), 40u);
  // Exponential gaps of mean 2 s a user: the mean of 10,000 within five standard errors, and as much deviation.
  double sum = 0, squares = 0;
  for (const auto& user : arrivals) {
    ASSERT_EQ(user.size(), 250u);
    for (size_t request = 0; request < user.size(); ++request) {
      const double gap = user[request] - (request == 0 ? 0 : user[request - 1]);
      ASSERT_GE(gap, 0);
      sum += gap;
      squares += gap * gap;
    }
  }
  const double mean = sum / 10'000;
  EXPECT_NEAR(mean, 2, 0.1);
  EXPECT_NEAR(std::sqrt(squares / 10'000 - mean * mean), 2, 0.2);
  EXPECT_EQ(arrivals_of(settings), arrivals);
  ServeLoadSettings other = settings;
  other.seed = 43;
  EXPECT_NE(arrivals_of(other), arrivals);
  other.requests_per_s = 0;
  EXPECT_EQ(arrivals_of(other)[7], std::vector<double>(250, 0.0));
}

TEST(ServeLoad, FiguresAreThoseOfTheTimes) {
  std::vector<ServedRequest> requests = {
      {.user = 0, .due_s = 0, .sent_s = 0, .token_s = {0.5, 0.6, 0.7}, .tokens = 3},
      {.user = 1,
       .due_s = 1,
       .sent_s = 3,
       .token_s = {4, 4.4, 4.8},
       .tokens = 3},  // sent late: its last answer was not there
      {.user = 2, .due_s = 1, .sent_s = 1, .error = "status 429"}};
  const ServeLoadFigures figures = serve_load_figures(requests);
  EXPECT_EQ(figures.requests, 3);
  EXPECT_EQ(figures.failed, 1);
  EXPECT_EQ(figures.first_error, "status 429");
  EXPECT_EQ(figures.output_tokens, 6);
  EXPECT_DOUBLE_EQ(figures.duration_s, 4.8);
  EXPECT_DOUBLE_EQ(figures.output_tokens_per_s, 6 / 4.8);
  EXPECT_DOUBLE_EQ(figures.first_token_p50_s, (0.5 + 3) / 2);  // from when it was due
  EXPECT_NEAR(figures.gap_p50_ms, 250, 1e-9);                  // 100, 100, 400, 400
  EXPECT_NEAR(figures.gap_max_ms, 400, 1e-9);
  EXPECT_NEAR(figures.slowest_user_tokens_per_s, 2.5, 1e-9);
  EXPECT_NEAR(figures.fastest_user_tokens_per_s, 10, 1e-9);
  EXPECT_NEAR(figures.fairness, 12.5 * 12.5 / (2 * (2.5 * 2.5 + 100)), 1e-9);
}

TEST(ServeLoad, NothingThatSucceededIsNoFigure) {
  const ServeLoadFigures figures = serve_load_figures({{.user = 0, .error = "connection refused"}});
  EXPECT_EQ(figures.failed, 1);
  EXPECT_TRUE(std::isnan(figures.output_tokens_per_s));
  EXPECT_TRUE(std::isnan(figures.fairness));
  EXPECT_TRUE(std::isnan(figures.gap_p99_ms));
}

TEST(ServeLoad, EveryUserAsksAsOftenAsHeShould) {
  ScriptedTarget::Journal journals[3];
  int made = 0;
  const SourceText source = scripted_source("novel", 300);
  const ServeLoadSettings settings = {
      .users = 3, .requests_per_user = 4, .prompt_tokens = 20, .generated_tokens = 5};
  const std::vector<ServedRequest> served = run_serve_load(
      [&] { return std::make_unique<ScriptedTarget>(ScriptedTarget::Behaviour(), journals[made++]); }, source,
      settings);
  ASSERT_EQ(served.size(), 12u);
  for (const ServedRequest& request : served) {
    EXPECT_EQ(request.error, "");
    EXPECT_EQ(request.token_s.size(), 5u);
  }
  for (const auto& journal : journals) {
    EXPECT_EQ(journal.starts, 1);
    EXPECT_EQ(journal.stops, 1);
    ASSERT_EQ(journal.prompts.size(), 4u);
    for (const std::vector<int32_t>& prompt : journal.prompts) {
      EXPECT_EQ(prompt.size(), 20u);
      EXPECT_EQ(prompt.front(), source.ids.front());
    }
  }
  EXPECT_NE(journals[0].prompts, journals[1].prompts);
}

}  // namespace
}  // namespace fathom::measure
