#include "engine/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/sampler.h"
#include "ops/reference/backend.h"

namespace fathom {
namespace {

using Ids = std::vector<int32_t>;

template <class T>
T unwrap(Result<T> result) {
  FATHOM_CHECK(result.ok(), "{}", result.error().message);
  return std::move(result).value();
}

// A random model of 5 layers, window 16, vocabulary 320, at most 114 tokens; steps of 8 rows.
std::unique_ptr<Model> load_model(Backend& backend, int rewind_tokens = 4,
                                  Numerics numerics = Numerics::kOfficial) {
  return unwrap(Model::load(unwrap(open_pack(FATHOM_SOURCE_DIR "/tests/data/golden/g2_select")), backend,
                            {.numerics = numerics,
                             .step_rows = 8,
                             .rewind_tokens = rewind_tokens,
                             .engram_token_map = {},
                             .engram = {}}));
}

// Tokens that depend on their positions only, so that two sequences have a common prefix.
Ids ids(int64_t count, int64_t same_until = 1000) {
  Ids tokens;
  for (int64_t position = 0; position < count; ++position)
    tokens.push_back(static_cast<int32_t>((position * 37 + (position >= same_until ? 11 : 5)) % 300));
  return tokens;
}

class SessionTest : public testing::Test {
 protected:
  std::unique_ptr<Session> make(int64_t context = 110, int64_t checkpoint_bytes = 1 << 20) {
    return unwrap(Session::make(*model_, {.context_tokens = context, .checkpoint_bytes = checkpoint_bytes}));
  }
  std::vector<float> fresh_logits(const Ids& tokens) {
    auto session = make();
    unwrap(session->sync(tokens));
    return logits(*session);
  }
  static std::vector<float> logits(const Session& session) {
    const auto view = unwrap(session.logits());
    return {view.begin(), view.end()};
  }
  static void expect(const SyncResult& result, SyncAction action, int64_t reused, int64_t evaluated) {
    EXPECT_EQ(static_cast<int>(result.action), static_cast<int>(action));
    EXPECT_EQ(result.reused_tokens, reused);
    EXPECT_EQ(result.evaluated_tokens, evaluated);
  }

  reference::ReferenceBackend backend_;
  std::unique_ptr<Model> model_ = load_model(backend_);
};

TEST_F(SessionTest, SyncSaysWhatItReused) {
  auto session = make();
  expect(unwrap(session->sync(ids(30))), SyncAction::kRebuilt, 0, 30);
  expect(unwrap(session->sync(ids(30))), SyncAction::kReused, 30, 0);
  expect(unwrap(session->sync(ids(43))), SyncAction::kExtended, 30, 13);
  EXPECT_EQ(logits(*session), fresh_logits(ids(43)));
  // Back by 2 of the 4 positions that the rings can take back.
  expect(unwrap(session->sync(ids(50, 41))), SyncAction::kRewound, 41, 9);
  EXPECT_EQ(session->tokens(), ids(50, 41));
  EXPECT_EQ(logits(*session), fresh_logits(ids(50, 41)));
  // A shorter prompt that is all there: its last token is evaluated again.
  expect(unwrap(session->sync(ids(49, 41))), SyncAction::kRewound, 48, 1);
  EXPECT_EQ(logits(*session), fresh_logits(ids(49, 41)));
}

TEST_F(SessionTest, GoesBackToTheEndOfAnEarlierPrompt) {
  auto session = make();
  unwrap(session->sync(ids(40)));  // leaves a checkpoint
  for (int step = 0; step < 20; ++step) ASSERT_TRUE(session->eval(7).ok());
  EXPECT_EQ(session->checkpoint_count(), 1u);
  // The next prompt repeats the first up to its last two tokens.
  expect(unwrap(session->sync(ids(60, 38))), SyncAction::kRestored, 38, 22);
  EXPECT_EQ(logits(*session), fresh_logits(ids(60, 38)));
  // Too far from any checkpoint: begins anew.
  expect(unwrap(session->sync(ids(60, 20))), SyncAction::kRebuilt, 0, 60);
  EXPECT_EQ(logits(*session), fresh_logits(ids(60, 20)));
  // The first prompt's checkpoint is still there.
  expect(unwrap(session->sync(ids(50))), SyncAction::kRestored, 40, 10);
  EXPECT_EQ(logits(*session), fresh_logits(ids(50)));
}

TEST_F(SessionTest, CheckpointsStayWithinTheirBudget) {
  auto session = make();
  unwrap(session->sync(ids(100)));
  const auto one = static_cast<int64_t>(unwrap(session->snapshot()).bytes());
  auto frugal = make(110, 2 * one);
  for (const int64_t split : {40, 39, 38}) unwrap(frugal->sync(ids(50, split)));
  EXPECT_GE(frugal->checkpoint_count(), 2u);
  for (const int64_t split : {37, 36}) unwrap(frugal->sync(ids(100, split)));
  EXPECT_EQ(frugal->checkpoint_count(), 2u);
  expect(unwrap(frugal->sync(ids(100, 37))), SyncAction::kRestored, 99, 1);  // the one before the last
  auto none = make(110, 0);
  unwrap(none->sync(ids(100)));
  EXPECT_EQ(none->checkpoint_count(), 0u);
}

TEST_F(SessionTest, EveryChunkingGivesTheSameLogits) {
  const std::vector<float> expected = fresh_logits(ids(61));
  for (const int64_t first : {1, 7, 8, 9, 33, 60}) {
    auto session = make();
    unwrap(session->sync(ids(first)));
    unwrap(session->sync(ids(61)));
    EXPECT_EQ(logits(*session), expected) << first;
  }
  auto session = make();
  for (const int32_t token : ids(61)) ASSERT_TRUE(session->eval(token).ok());
  EXPECT_EQ(logits(*session), expected);
}

TEST_F(SessionTest, ACancelledPromptGoesOnWhereItStopped) {
  auto session = make();
  int calls = 0;
  std::vector<int64_t> told;
  const auto cancelled = session->sync(ids(60), [&](const Progress& progress) {
    EXPECT_EQ(progress.stage, "prefill");
    EXPECT_EQ(progress.total, 60);
    told.push_back(progress.done);
    return ++calls < 4;
  });
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(told, (std::vector<int64_t>{0, 8, 16, 24}));
  EXPECT_EQ(session->position(), 24);
  EXPECT_EQ(session->logits().error().code, ErrorCode::kState);
  EXPECT_EQ(session->eval(3).error().code, ErrorCode::kState);
  EXPECT_EQ(session->snapshot().error().code, ErrorCode::kState);

  expect(unwrap(session->sync(ids(60))), SyncAction::kExtended, 24, 36);
  EXPECT_EQ(logits(*session), fresh_logits(ids(60)));
}

TEST_F(SessionTest, ACancelledPromptIsDroppedWhenTheNextDiffers) {
  for (const int64_t length : {24, 20, 40}) {
    auto session = make();
    int calls = 0;
    ASSERT_FALSE(session->sync(ids(60), [&](const Progress&) { return ++calls < 4; }).ok());
    const Ids next = ids(length, length == 24 ? 1000 : 18);  // 24: exactly what is there
    expect(unwrap(session->sync(next)), SyncAction::kRebuilt, 0, length);
    EXPECT_EQ(logits(*session), fresh_logits(next)) << length;
  }
}

TEST_F(SessionTest, RefusesWhatDoesNotFit) {
  auto session = make(20);
  EXPECT_EQ(session->sync({}).error().code, ErrorCode::kInvalidArgument);
  const Error full = session->sync(ids(21)).error();
  EXPECT_EQ(full.code, ErrorCode::kContextFull);
  EXPECT_EQ(full.message, "the prompt has 21 tokens, the context holds 20");
  const Error bad = session->sync(Ids{1, 2, 320}).error();
  EXPECT_EQ(bad.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(bad.message, "token 320 at position 2: expected 0 to 319");
  EXPECT_EQ(session->sync(Ids{1, -1}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(session->sync(Ids{1, 306}).error().code, ErrorCode::kUnsupported);  // an image
  EXPECT_EQ(session->position(), 0);

  unwrap(session->sync(ids(19)));
  ASSERT_TRUE(session->eval(5).ok());
  const std::vector<float> before = logits(*session);
  EXPECT_EQ(session->eval(5).error().message, "the context of 20 tokens is full");
  EXPECT_EQ(session->eval(-1).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(logits(*session), before);
  expect(unwrap(session->sync(ids(20))), SyncAction::kRewound, 19, 1);  // a full context can be used on
  EXPECT_EQ(Session::make(*model_, {.context_tokens = 115}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Session::make(*model_, {.context_tokens = 0}).error().code, ErrorCode::kInvalidArgument);
}

// A step that fails while it runs empties the states of all its sequences; their sessions must know.
TEST_F(SessionTest, AFailedStepLeavesEmptySessions) {
  auto one = make(), other = make();
  unwrap(one->sync(ids(20)));
  unwrap(other->sync(ids(10)));
  const auto fail_next_step = [&] {
    model_->set_probe([&](const ProbeEvent& event) {
      if (event.name == "final_norm") static_cast<float*>(event.data)[0] = std::nanf("");
    });
  };

  fail_next_step();
  Session* const both[] = {one.get(), other.get()};
  EXPECT_EQ(Session::eval_batch(both, Ids{5, 6}).error().code, ErrorCode::kBadPack);
  model_->set_probe({});
  EXPECT_EQ(one->position(), 0);
  EXPECT_EQ(other->position(), 0);
  EXPECT_EQ(one->logits().error().code, ErrorCode::kState);
  unwrap(one->sync(ids(21)));
  EXPECT_EQ(logits(*one), fresh_logits(ids(21)));

  fail_next_step();
  EXPECT_EQ(one->sync(ids(23)).error().code, ErrorCode::kBadPack);  // no more rows than can be taken back
  model_->set_probe({});
  EXPECT_EQ(one->position(), 0);
  unwrap(one->sync(ids(24)));
  EXPECT_EQ(logits(*one), fresh_logits(ids(24)));
}

TEST_F(SessionTest, RewindsWithinWhatTheRingsHold) {
  auto session = make();
  unwrap(session->sync(ids(40)));
  EXPECT_EQ(session->rewind(41).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(session->rewind(20).error().code, ErrorCode::kState);
  EXPECT_EQ(session->position(), 40);
  ASSERT_TRUE(session->rewind(37).ok());
  EXPECT_EQ(session->logits().error().code, ErrorCode::kState);
}

TEST_F(SessionTest, ASecondRewindMayNotReachWhatWasOverwritten) {
  // Token by token, so that every ring has held every position.
  auto session = make();
  for (const int32_t token : ids(41)) ASSERT_TRUE(session->eval(token).ok());
  const std::vector<float> expected = logits(*session);
  const SavedState saved = unwrap(session->snapshot());
  int accepted = 0;
  for (int64_t position = 37; position > 28; --position) {
    ASSERT_TRUE(session->restore(saved).ok());
    ASSERT_TRUE(session->rewind(38).ok());
    if (!session->rewind(position).ok()) continue;
    ++accepted;
    for (int64_t next = position; next < 41; ++next)
      ASSERT_TRUE(session->eval(ids(41)[static_cast<size_t>(next)]).ok());
    EXPECT_EQ(logits(*session), expected) << position;
  }
  EXPECT_GE(accepted, 1);
}

TEST_F(SessionTest, SnapshotsComeBackAnywhere) {
  auto session = make();
  unwrap(session->sync(ids(41)));
  const SavedState saved = unwrap(session->snapshot());
  const std::vector<float> at_41 = logits(*session);
  for (int step = 0; step < 30; ++step) ASSERT_TRUE(session->eval(9).ok());
  ASSERT_TRUE(session->restore(saved).ok());
  EXPECT_EQ(session->tokens(), ids(41));
  EXPECT_EQ(logits(*session), at_41);
  auto other = make(60);
  ASSERT_TRUE(other->restore(saved).ok());
  ASSERT_TRUE(other->eval(ids(42)[41]).ok());
  EXPECT_EQ(logits(*other), fresh_logits(ids(42)));
  auto narrow = make(40);
  EXPECT_EQ(narrow->restore(saved).error().code, ErrorCode::kContextFull);
}

// A ring is saved whole, so what it held of another text would go into the file.
TEST_F(SessionTest, ASnapshotHoldsNothingOfAnEarlierText) {
  auto used = make(), fresh = make();
  unwrap(used->sync(ids(60)));
  used->invalidate();
  unwrap(used->sync(ids(6, 0)));
  unwrap(fresh->sync(ids(6, 0)));
  EXPECT_EQ(unwrap(used->snapshot()).state, unwrap(fresh->snapshot()).state);
}

TEST_F(SessionTest, FilesAreForTheSameModelAndNumerics) {
  const std::string path = testing::TempDir() + "session_test.state";
  auto session = make();
  unwrap(session->sync(ids(33)));
  ASSERT_TRUE(session->save(path).ok());
  auto other = make();
  ASSERT_TRUE(other->load(path).ok());
  EXPECT_EQ(logits(*other), logits(*session));
  expect(unwrap(other->sync(ids(40))), SyncAction::kExtended, 33, 7);
  EXPECT_EQ(logits(*other), fresh_logits(ids(40)));

  const auto exact_model = load_model(backend_, 4, Numerics::kExact);
  auto exact = unwrap(Session::make(*exact_model, {.context_tokens = 110}));
  EXPECT_EQ(exact->load(path).error().code, ErrorCode::kBadPack);
  EXPECT_EQ(exact->position(), 0);
  auto narrow = make(32);
  EXPECT_EQ(narrow->load(path).error().code, ErrorCode::kContextFull);
  std::filesystem::remove(path);
}

TEST_F(SessionTest, SessionsOfOneStepDoNotTouchEachOther) {
  auto a = make(), b = make(), c = make();
  unwrap(a->sync(ids(30)));
  unwrap(b->sync(ids(17, 3)));
  unwrap(c->sync(ids(5, 2)));
  for (int32_t step = 0; step < 4; ++step) {
    const std::vector<Session*> sessions = {a.get(), b.get(), c.get()};
    const Ids tokens = {step, 10 + step, 20 + step};
    ASSERT_TRUE(Session::eval_batch(sessions, tokens).ok());
  }
  auto alone = make();
  unwrap(alone->sync(ids(17, 3)));
  for (int32_t step = 0; step < 4; ++step) ASSERT_TRUE(alone->eval(10 + step).ok());
  EXPECT_EQ(logits(*b), logits(*alone));
  EXPECT_EQ(b->tokens(), alone->tokens());

  const std::vector<Session*> twice = {a.get(), a.get()};
  EXPECT_EQ(Session::eval_batch(twice, Ids{1, 2}).error().message, "session 1 appears twice");
  const std::vector<Session*> two = {a.get(), b.get()};
  EXPECT_FALSE(Session::eval_batch(two, Ids{1}).ok());
  const int64_t before = a->position();
  EXPECT_FALSE(Session::eval_batch(two, Ids{1, 999}).ok());
  EXPECT_EQ(a->position(), before);
}

TEST_F(SessionTest, ScoresEqualTheLogprobsOfSteps) {
  const Ids tokens = ids(50);
  auto session = make();
  const std::vector<double> scores = unwrap(session->score(tokens));
  ASSERT_EQ(scores.size(), 49u);
  EXPECT_EQ(logits(*session), fresh_logits(tokens));
  auto steps = make();
  for (size_t position = 0; position + 1 < tokens.size(); ++position) {
    ASSERT_TRUE(steps->eval(tokens[position]).ok());
    EXPECT_EQ(scores[position], unwrap(token_logprob(logits(*steps), tokens[position + 1]))) << position;
  }
}

TEST_F(SessionTest, EvaluateGoesOnFromWhatIsHeldAndShowsEveryRow) {
  const Ids tokens = ids(50);
  auto session = make(), steps = make();
  unwrap(session->sync(std::span(tokens).first(13)));
  unwrap(steps->sync(std::span(tokens).first(13)));
  int64_t next = 13;
  const auto look = [&](int64_t at, std::span<const float> row) -> Result<void> {
    EXPECT_EQ(at, next++);
    EXPECT_TRUE(steps->eval(tokens[static_cast<size_t>(at)]).ok());
    EXPECT_EQ(std::vector<float>(row.begin(), row.end()), logits(*steps)) << at;
    return {};
  };
  ASSERT_TRUE(session->evaluate(std::span(tokens).subspan(13), look).ok());
  EXPECT_EQ(next, 50);
  EXPECT_EQ(session->tokens(), tokens);
  EXPECT_EQ(logits(*session), fresh_logits(tokens));
}

TEST_F(SessionTest, EvaluateEndsWhenItIsToldTo) {
  auto session = make();
  const auto stop = [](int64_t at, std::span<const float>) -> Result<void> {
    if (at == 9) return Error::cancelled("enough");
    return {};
  };
  const auto ended = session->evaluate(ids(40), stop);
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().message, "enough");
  EXPECT_EQ(session->position(), 16);  // two steps of 8 rows
  EXPECT_EQ(logits(*session), fresh_logits(ids(16)));
  EXPECT_EQ(session->evaluate(ids(100), stop).error().code, ErrorCode::kContextFull);
  EXPECT_EQ(session->position(), 16);
}

TEST_F(SessionTest, InvalidateForgetsAll) {
  auto session = make();
  unwrap(session->sync(ids(40)));
  session->invalidate();
  EXPECT_EQ(session->position(), 0);
  EXPECT_EQ(session->checkpoint_count(), 0u);
  expect(unwrap(session->sync(ids(40))), SyncAction::kRebuilt, 0, 40);
}

}  // namespace
}  // namespace fathom
