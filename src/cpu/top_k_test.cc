#include "cpu/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace fathom::cpu {
namespace {

std::vector<int32_t> chosen(const std::vector<float>& scores, int64_t size) {
  const auto count = static_cast<int64_t>(scores.size());
  const int64_t run = top_k_run(count, size);
  std::vector<int32_t> best(static_cast<size_t>((count + run - 1) / run));
  best_of_runs(scores.data(), count, run, best.data());
  Scratch scratch;
  std::vector<int32_t> places(static_cast<size_t>(size), -7);
  top_k(scratch, scores.data(), count, run == 1 ? nullptr : best.data(), size, places.data());
  return places;
}

std::vector<int32_t> sorted(const std::vector<float>& scores, int64_t size) {
  std::vector<int32_t> places(scores.size());
  std::iota(places.begin(), places.end(), 0);
  std::sort(places.begin(), places.end(), [&](int32_t a, int32_t b) {
    const float first = scores[static_cast<size_t>(a)], second = scores[static_cast<size_t>(b)];
    return first != second ? first > second : a < b;
  });
  places.resize(std::min(places.size(), static_cast<size_t>(size)));
  std::sort(places.begin(), places.end());
  places.resize(static_cast<size_t>(size), -1);
  return places;
}

TEST(TopK, EqualsASortWithTiesToTheLowerPlace) {
  std::mt19937 random(1);
  for (const int64_t size : {1, 3, 16, 100})
    for (const int64_t count : {0, 1, 5, 99, 100, 101, 1000, 5000, 30000})
      for (const int levels : {2, 50, 1 << 20}) {  // few levels: many ties
        std::vector<float> scores(static_cast<size_t>(count));
        for (float& score : scores)
          score = static_cast<float>(static_cast<int>(random() % static_cast<uint32_t>(levels)) - levels / 2);
        EXPECT_EQ(chosen(scores, size), sorted(scores, size)) << size << " of " << count;
        // In order, every score displaces an earlier one, or none does.
        std::sort(scores.begin(), scores.end());
        EXPECT_EQ(chosen(scores, size), sorted(scores, size)) << size << " of " << count << " ascending";
        std::reverse(scores.begin(), scores.end());
        EXPECT_EQ(chosen(scores, size), sorted(scores, size)) << size << " of " << count << " descending";
      }
}

TEST(TopK, InfinitiesHaveTheirPlace) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> scores(1000, -kInfinity);
  scores[700] = kInfinity;
  scores[3] = -1;
  EXPECT_EQ(chosen(scores, 2), (std::vector<int32_t>{3, 700}));
  EXPECT_EQ(chosen(scores, 4), (std::vector<int32_t>{0, 1, 3, 700}));
}

TEST(TopK, RunsCoverWhatIsWanted) {
  EXPECT_EQ(top_k_run(131072, 512), 64);
  EXPECT_EQ(top_k_run(16384, 512), 8);
  EXPECT_EQ(top_k_run(700, 512), 1);
  EXPECT_EQ(top_k_run(int64_t{1} << 20, 1), kTopKRun);
}

}  // namespace
}  // namespace fathom::cpu
