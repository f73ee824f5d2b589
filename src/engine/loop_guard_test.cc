#include "engine/loop_guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace fathom {
namespace {

using Ids = std::vector<int32_t>;

LoopGuardOptions watching() { return {.mode = LoopGuardMode::kObserve}; }

LoopReport report_of(const Ids& ids, const LoopGuardOptions& options = watching()) {
  LoopGuard guard(options);
  for (const int32_t id : ids) guard.take(id);
  return guard.report();
}

// Letters are tokens; words would be longer periods of the same kind.
Ids ids_of(std::string_view text) { return {text.begin(), text.end()}; }

// Different tokens, none of which comes twice.
Ids piece(int32_t first, int32_t count) {
  Ids ids;
  for (int32_t at = 0; at < count; ++at) ids.push_back(first + at);
  return ids;
}

Ids times(const Ids& ids, int count) {
  Ids all;
  for (int copy = 0; copy < count; ++copy) all.insert(all.end(), ids.begin(), ids.end());
  return all;
}

Ids joined(Ids first, const Ids& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

// At every end of the answer, every period, by looking back: the definition in the header.
LoopReport by_definition(const Ids& ids, const LoopGuardOptions& options) {
  for (size_t end = 1; end <= ids.size(); ++end) {
    for (size_t period = 1; period <= static_cast<size_t>(options.period_tokens_max) && period < end; ++period) {
      size_t begin = end - period;
      while (begin > 0 && ids[begin - 1] == ids[begin - 1 + period]) --begin;
      const size_t tokens = end - begin;
      if (tokens < static_cast<size_t>(options.repeats_min) * period ||
          tokens < static_cast<size_t>(options.repeated_tokens_min))
        continue;
      size_t last = end;
      while (last < ids.size() && ids[last] == ids[last - period]) ++last;
      return {.found = true,
              .period_tokens = static_cast<int32_t>(period),
              .repeats = static_cast<int64_t>((last - begin) / period),
              .first_token = static_cast<int64_t>(begin)};
    }
  }
  return {};
}

void expect_equal(const LoopReport& found, const LoopReport& expected) {
  ASSERT_EQ(found.found, expected.found);
  ASSERT_EQ(found.period_tokens, expected.period_tokens);
  ASSERT_EQ(found.repeats, expected.repeats);
  ASSERT_EQ(found.first_token, expected.first_token);
}

TEST(LoopGuard, SixtyFourEqualTokens) {
  const Ids start = piece(100, 50);
  EXPECT_FALSE(report_of(joined(start, times({7}, 63))).found);
  const LoopReport report = report_of(joined(start, times({7}, 64)));
  expect_equal(report, {.found = true, .period_tokens = 1, .repeats = 64, .first_token = 50});
}

TEST(LoopGuard, SentencesFourTimes) {
  const Ids sentence = piece(1000, 30);
  LoopGuard guard(watching());
  const Ids answer = joined(piece(5, 12), times(sentence, 4));
  for (size_t at = 0; at < answer.size(); ++at)
    EXPECT_EQ(guard.take(answer[at]), at + 1 == answer.size()) << "found with the last token, not before";
  expect_equal(guard.report(), {.found = true, .period_tokens = 30, .repeats = 4, .first_token = 12});
}

TEST(LoopGuard, PeriodsUpToTheLongest) {
  for (const int32_t period : {2, 15, 16, 17, 31, 100, 511, 1000, 1023, 1024}) {
    const LoopReport report = report_of(joined(piece(90000, 3), times(piece(1, period), 64)));
    expect_equal(report, {.found = true, .period_tokens = period, .repeats = 64, .first_token = 3});
  }
  EXPECT_FALSE(report_of(times(piece(1, 1025), 8)).found);
}

TEST(LoopGuard, CountsOnWhileTheLoopLastsAndNoFurther) {
  const Ids loop = times(piece(1, 20), 7);
  const Ids half = piece(1, 10);
  Ids answer = joined(joined(piece(500, 9), loop), half);
  answer = joined(joined(answer, piece(700, 5)), times(piece(1, 20), 50));
  expect_equal(report_of(answer), {.found = true, .period_tokens = 20, .repeats = 7, .first_token = 9});
}

TEST(LoopGuard, OffMeansOff) {
  LoopGuard guard(LoopGuardOptions{});
  for (int at = 0; at < 1000; ++at) EXPECT_FALSE(guard.take(1));
  EXPECT_FALSE(guard.report().found);
}

TEST(LoopGuard, OddOptionsFindNothingOddly) {
  LoopGuardOptions options = watching();
  options.period_tokens_max = 0;
  EXPECT_FALSE(report_of(times({1}, 1000), options).found);
  options.period_tokens_max = -5;
  EXPECT_FALSE(report_of(times({1}, 1000), options).found);
  options = {.mode = LoopGuardMode::kStop, .period_tokens_max = 3, .repeats_min = 0, .repeated_tokens_min = 0};
  EXPECT_EQ(report_of({1, 2, 3, 4, 4}, options).repeats, 2) << "one copy alone is no repetition";
  EXPECT_EQ(report_of({1, 2, 3, 4, 4}, options).first_token, 3);
}

TEST(LoopGuard, LeavesHonestTextAlone) {
  std::string list, table, code, json, laughter;
  for (int row = 0; row < 200; ++row) {
    const std::string number = std::to_string(row);
    list += number + ". the same words on every line of it\n";
    table += "| cell | " + number + " | yes | no |\n";
    code += "  out[" + number + "] = in[" + number + "];\n";
    json += "{\"id\":" + number + ",\"ok\":true},";
  }
  for (int count = 0; count < 10; ++count) laughter += "ha";
  for (const std::string& text : {list, table, code, json, laughter + " very funny " + laughter})
    EXPECT_FALSE(report_of(ids_of(text)).found) << text.substr(0, 60);
  // Equal lines, but not four of them; a rule across the page.
  EXPECT_FALSE(report_of(joined(times(piece(1, 40), 3), piece(900, 50))).found);
  EXPECT_FALSE(report_of(joined(joined(piece(1, 5), times({9}, 60)), piece(50, 60))).found);
}

TEST(LoopGuard, AgreesWithItsDefinition) {
  std::mt19937 random(11);
  int found = 0;
  for (int round = 0; round < 4000; ++round) {
    const LoopGuardOptions options = {.mode = LoopGuardMode::kObserve,
                                      .period_tokens_max = static_cast<int32_t>(1 + random() % 40),
                                      .repeats_min = static_cast<int32_t>(2 + random() % 4),
                                      .repeated_tokens_min = static_cast<int32_t>(random() % 30)};
    Ids ids(random() % 120);
    const uint32_t alphabet = 1 + static_cast<uint32_t>(random() % 4);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % alphabet);
    // Half of them get a loop somewhere, of a period that may be too long.
    if (!ids.empty() && random() % 2 == 0) {
      const size_t begin = random() % ids.size(), period = 1 + random() % 45;
      const size_t end = begin + random() % (ids.size() - begin);
      for (size_t at = begin + period; at < end; ++at) ids[at] = ids[at - period];
    }
    const LoopReport expected = by_definition(ids, options);
    found += expected.found ? 1 : 0;
    expect_equal(report_of(ids, options), expected);
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(found, 1000);
  EXPECT_LT(found, 3900);
}

// Long enough for the history to have moved up many times.
TEST(LoopGuard, AgreesWithItsDefinitionFarIntoAnAnswer) {
  std::mt19937 random(5);
  LoopGuardOptions options = watching();
  options.period_tokens_max = 64;
  for (const int32_t period : {1, 33, 64}) {
    Ids ids(5000);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 50);
    const auto distance = static_cast<size_t>(period);
    for (size_t at = 4000 + distance; at < 4600; ++at) ids[at] = ids[at - distance];
    expect_equal(report_of(ids, options), by_definition(ids, options));
    EXPECT_EQ(report_of(ids, options).period_tokens, period);
  }
}

}  // namespace
}  // namespace fathom
