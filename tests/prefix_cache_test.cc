#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include "scheduler_test_model.h"

namespace fathom {
namespace {

class PrefixCacheTest : public testing::Test {
 protected:
  std::unique_ptr<SequenceState> state_of(const Ids& tokens, size_t chunk = 8) {
    auto state = unwrap(model_->new_state(110));
    extend(*state, tokens, chunk);
    return state;
  }
  void extend(SequenceState& state, const Ids& tokens, size_t chunk = 8) {
    while (state.position() < static_cast<int64_t>(tokens.size())) {
      const auto rest = std::span<const int32_t>(tokens).subspan(static_cast<size_t>(state.position()));
      const auto part = rest.first(std::min(rest.size(), chunk));
      const bool last = part.size() == rest.size();
      const Segment segment{.state = &state,
                            .tokens = part,
                            .is_last_chunk = last,
                            .logits = last ? LogitRows::kLast : LogitRows::kNone,
                            .logits_out = logits_.data()};
      unwrap(model_->run({&segment, 1}));
    }
  }
  std::vector<float> logits_after(SequenceState& state, const Ids& tokens) {
    extend(state, tokens);
    return logits_;
  }
  std::vector<float> cold_logits(const Ids& tokens) {
    auto state = state_of(tokens);
    return logits_;
  }
  bool keep(PrefixCache& cache, const Ids& tokens, bool with_logits = false) {
    auto state = state_of(tokens);
    return cache.keep(tokens, *state, std::span<const float>(logits_).first(with_logits ? 320 : 0), {});
  }
  int64_t one_state_bytes(int64_t tokens) {
    PrefixCache cache(model_->state_shape(), 1 << 30);
    keep(cache, ids(tokens));
    return cache.statistics().bytes;
  }

  std::unique_ptr<Backend> backend_ = unwrap(make_cpu_backend({.thread_count = 2}));
  std::unique_ptr<Model> model_ = load_model(*backend_);
  std::vector<float> logits_ = std::vector<float>(320);
};

TEST_F(PrefixCacheTest, AStateComesApartAndTogetherToTheByte) {
  for (const int64_t length : {1, 2, 15, 16, 17, 20, 21, 47, 64}) {
    const auto state = state_of(ids(length));
    const std::vector<std::byte> whole = unwrap(state->serialise());
    const std::vector<std::byte> windows = unwrap(state->export_windows());
    for (const int64_t cut : {int64_t{0}, int64_t{1}, length / 2, length - 1}) {
      std::vector<std::byte> front(static_cast<size_t>(model_->state_shape().rows_bytes(0, cut)));
      std::vector<std::byte> back(static_cast<size_t>(model_->state_shape().rows_bytes(cut, length)));
      state->export_rows(0, cut, front.data());
      state->export_rows(cut, length, back.data());
      const SequenceState::RowsPiece pieces[] = {{0, cut, front.data()}, {cut, length, back.data()}};
      auto other = state_of(ids(33, 0));  // of something else before
      unwrap(other->assemble(pieces, windows));
      EXPECT_EQ(unwrap(other->serialise()), whole) << length << " cut at " << cut;
    }
  }
  auto narrow = unwrap(model_->new_state(10));
  const auto state = state_of(ids(11));
  std::vector<std::byte> rows(static_cast<size_t>(model_->state_shape().rows_bytes(0, 11)));
  state->export_rows(0, 11, rows.data());
  const SequenceState::RowsPiece piece{0, 11, rows.data()};
  EXPECT_EQ(narrow->assemble({&piece, 1}, unwrap(state->export_windows())).error().code, ErrorCode::kContextFull);
}

TEST_F(PrefixCacheTest, TheDecoderCatchesUpInPortions) {
  const auto whole = state_of(ids(61));
  const std::vector<float> expected = logits_;
  for (const int64_t portion : {1, 3, 8, 20}) {
    auto state = unwrap(model_->new_state(110));
    const Ids tokens = ids(61);
    for (size_t begin = 0; begin < tokens.size(); begin += 7) {
      const Segment segment{.state = state.get(),
                            .tokens = std::span(tokens).subspan(begin, std::min<size_t>(7, tokens.size() - begin)),
                            .is_last_chunk = false,
                            .logits = LogitRows::kNone};
      unwrap(model_->run({&segment, 1}));
    }
    EXPECT_EQ(state->decoder_backlog(), model_->state_shape().tail_rows);
    std::fill(logits_.begin(), logits_.end(), -1.0f);
    int portions = 0;
    for (; state->decoder_pending(); ++portions) {
      const Segment segment{.state = state.get(), .tokens = {}, .logits_out = logits_.data(),
                            .decoder_rows_max = portion};
      unwrap(model_->run({&segment, 1}));
      if (!state->decoder_pending()) break;
      EXPECT_TRUE(state->decoder_catching_up());
      const Segment more{.state = state.get(), .tokens = std::span(tokens).first(1), .logits_out = logits_.data()};
      EXPECT_EQ(model_->run({&more, 1}).error().code, ErrorCode::kState);
    }
    EXPECT_EQ(portions + 1, (model_->state_shape().tail_rows + portion - 1) / portion);
    EXPECT_EQ(logits_, expected) << portion;
    EXPECT_EQ(unwrap(state->serialise()), unwrap(whole->serialise())) << portion;
    const Segment late{.state = state.get(), .tokens = {}, .logits_out = logits_.data(), .decoder_rows_max = 1};
    EXPECT_EQ(model_->run({&late, 1}).error().code, ErrorCode::kInvalidArgument);
  }
}

TEST_F(PrefixCacheTest, AStoppedStepLeavesEmptyStates) {
  auto state = state_of(ids(20));
  const Ids more = {1, 2, 3};
  const Segment segment{.state = state.get(), .tokens = more, .logits_out = logits_.data()};
  int asked = 0;
  EXPECT_EQ(model_->run({&segment, 1}, [&] { return ++asked == 3; }).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(state->position(), 0);
  EXPECT_EQ(logits_after(*state, ids(23)), cold_logits(ids(23)));
}

TEST_F(PrefixCacheTest, GivesTheLongestPrefixBack) {
  PrefixCache cache(model_->state_shape(), 1 << 30);
  ASSERT_TRUE(keep(cache, ids(20)));
  ASSERT_TRUE(keep(cache, ids(50)));
  ASSERT_TRUE(keep(cache, ids(60, 31)));  // parts from the others at 31
  EXPECT_EQ(cache.statistics().entries, 3);
  const auto reused = [&](const Ids& prompt) { return cache.find(prompt).reused_tokens; };
  EXPECT_EQ(reused(ids(100)), 50);
  EXPECT_EQ(reused(ids(100, 31)), 60);
  EXPECT_EQ(reused(ids(100, 40)), 20);
  EXPECT_EQ(reused(ids(100, 48)), 48);  // the snapshot at 50 goes back by two
  EXPECT_EQ(reused(ids(100, 58)), 50);
  EXPECT_EQ(reused(ids(50)), 49);  // there are no logits, so the last token is evaluated
  EXPECT_EQ(reused(ids(49)), 48);
  EXPECT_EQ(reused(ids(30)), 20);
  EXPECT_EQ(reused(ids(20)), 19);
  EXPECT_EQ(reused(ids(100, 0)), 0);
  auto state = unwrap(model_->new_state(110));
  for (const Ids& prompt : {ids(100), ids(100, 31), ids(80, 40), ids(70, 48), ids(51), ids(20)}) {
    const PrefixCache::Match match = cache.find(prompt);
    EXPECT_FALSE(unwrap(cache.restore(match, *state, logits_)));
    EXPECT_EQ(state->position(), match.reused_tokens);
    EXPECT_EQ(logits_after(*state, prompt), cold_logits(prompt)) << prompt.size();
  }
}

TEST_F(PrefixCacheTest, EveryCutGivesTheSameAsCold) {
  const Ids prompt = ids(70);
  const std::vector<float> expected = cold_logits(prompt);
  for (const int64_t at : {1, 2, 7, 8, 9, 15, 16, 17, 19, 20, 21, 31, 32, 33, 68, 69}) {
    PrefixCache cache(model_->state_shape(), 1 << 30);
    ASSERT_TRUE(keep(cache, ids(at)));
    ASSERT_TRUE(keep(cache, ids(at + 3, at - 1)));  // splits the edge just before
    ASSERT_TRUE(keep(cache, ids(at + 10, at + 5)));
    const PrefixCache::Match match = cache.find(prompt);
    EXPECT_GE(match.reused_tokens, at);
    auto state = state_of(ids(25, 0));
    unwrap(cache.restore(match, *state, logits_));
    EXPECT_EQ(logits_after(*state, prompt), expected) << at;
  }
}

TEST_F(PrefixCacheTest, KeepsLogitsOfWholePrompts) {
  PrefixCache cache(model_->state_shape(), 1 << 30);
  ASSERT_TRUE(keep(cache, ids(40)));
  EXPECT_EQ(cache.find(ids(40)).reused_tokens, 39);
  ASSERT_TRUE(keep(cache, ids(40), true));  // the same state, now with logits
  EXPECT_EQ(cache.statistics().entries, 1);
  const PrefixCache::Match match = cache.find(ids(40));
  EXPECT_EQ(match.reused_tokens, 40);
  auto state = unwrap(model_->new_state(110));
  std::fill(logits_.begin(), logits_.end(), 0.0f);
  EXPECT_TRUE(unwrap(cache.restore(match, *state, logits_)));
  const std::vector<float> restored = logits_;
  EXPECT_EQ(restored, cold_logits(ids(40)));
}

TEST_F(PrefixCacheTest, StaysWithinItsBudget) {
  const int64_t budget = 5 * one_state_bytes(60) / 2;
  PrefixCache cache(model_->state_shape(), budget);
  for (int round = 0; round < 12; ++round) {
    ASSERT_TRUE(keep(cache, ids(60 - round % 3, round % 4 * 5)));
    EXPECT_LE(cache.statistics().bytes, budget);
  }
  EXPECT_GT(cache.statistics().evictions, 0);
  EXPECT_GE(cache.statistics().entries, 2);
  PrefixCache small(model_->state_shape(), one_state_bytes(60) - 1);
  EXPECT_FALSE(keep(small, ids(60)));
  EXPECT_EQ(small.statistics().bytes, 0);
  PrefixCache none(model_->state_shape(), 0);
  EXPECT_FALSE(keep(none, ids(1)));
}

// What goes is what spares least for its bytes and was not used for long; never what a waiting prompt wants.
TEST_F(PrefixCacheTest, ChoosesWhatGoes) {
  const int64_t two = 2 * one_state_bytes(60);
  const Ids a = ids(60), b = ids(60, 0);
  Ids c = ids(60);
  for (int32_t& id : c) id = (id + 1) % 300;
  PrefixCache cache(model_->state_shape(), two + 1000);
  ASSERT_TRUE(keep(cache, a));
  ASSERT_TRUE(keep(cache, b));
  auto state = unwrap(model_->new_state(110));
  unwrap(cache.restore(cache.find(ids(70)), *state, logits_));  // a is the newer now
  ASSERT_TRUE(keep(cache, c));
  EXPECT_EQ(cache.find(ids(70)).reused_tokens, 60);
  EXPECT_EQ(cache.find(ids(70, 0)).reused_tokens, 0);

  const std::span<const int32_t> incoming[] = {a};
  const auto of_b = state_of(b);
  Ids longer = c;
  longer.push_back(1);
  for (int round = 0; round < 5; ++round) unwrap(cache.restore(cache.find(longer), *state, logits_));
  ASSERT_TRUE(cache.keep(b, *of_b, {}, incoming));
  EXPECT_EQ(cache.find(ids(70)).reused_tokens, 60);
  EXPECT_EQ(cache.find(c).reused_tokens, 0);
  const std::span<const int32_t> both[] = {a, b};
  const auto of_c = state_of(c);
  EXPECT_FALSE(cache.keep(c, *of_c, {}, both));
}

// Between two snapshots of one conversation the earlier one goes first: it is the cheaper to have again.
TEST_F(PrefixCacheTest, RowsStayWhileASnapshotNeedsThem) {
  PrefixCache cache(model_->state_shape(), one_state_bytes(70) + one_state_bytes(10));
  ASSERT_TRUE(keep(cache, ids(64)));
  ASSERT_TRUE(keep(cache, ids(66)));
  for (int64_t length = 68; length <= 72; length += 2) ASSERT_TRUE(keep(cache, ids(length)));
  EXPECT_GT(cache.statistics().evictions, 0);
  const PrefixCache::Match match = cache.find(ids(90));
  EXPECT_EQ(match.reused_tokens, 72);
  auto state = unwrap(model_->new_state(110));
  unwrap(cache.restore(match, *state, logits_));
  EXPECT_EQ(logits_after(*state, ids(90)), cold_logits(ids(90)));
}

}  // namespace
}  // namespace fathom
