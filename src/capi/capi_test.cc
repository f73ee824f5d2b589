#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "capi/inspect.h"
#include "fathom/fathom.h"

namespace {

using Ids = std::vector<int32_t>;
const std::string kMini = FATHOM_SOURCE_DIR "/models/mini";
const std::string kGolden = FATHOM_SOURCE_DIR "/tests/data/golden/g3_candidate_engram";

#define EXPECT_OK(call) EXPECT_EQ(call, FATHOM_OK) << fathom_last_error()
#define ASSERT_OK(call) ASSERT_EQ(call, FATHOM_OK) << fathom_last_error()

struct Closer {
  void operator()(fathom_engine* engine) const { fathom_engine_close(engine); }
  void operator()(fathom_session* session) const { fathom_session_free(session); }
  void operator()(fathom_tokenizer* tokenizer) const { fathom_tokenizer_close(tokenizer); }
  void operator()(fathom_parser* parser) const { fathom_parser_free(parser); }
  void operator()(char* text) const { fathom_free(text); }
};
template <class Handle>
using Owned = std::unique_ptr<Handle, Closer>;

fathom_engine_options options_for(const std::string& path) {
  fathom_engine_options options;
  fathom_engine_options_init(&options);
  options.model_path = path.c_str();
  options.context_tokens = 100;
  options.threads = 2;
  return options;
}

Owned<fathom_engine> open(const fathom_engine_options& options) {
  fathom_engine* engine = nullptr;
  EXPECT_OK(fathom_engine_open(&options, &engine));
  return Owned<fathom_engine>(engine);
}

Owned<fathom_session> make_session(fathom_engine* engine, int64_t context = 100) {
  fathom_session* session = nullptr;
  EXPECT_OK(fathom_session_create(engine, context, &session));
  return Owned<fathom_session>(session);
}

std::string opening_error(const fathom_engine_options& options, fathom_status expected) {
  fathom_engine* engine = nullptr;
  EXPECT_EQ(fathom_engine_open(&options, &engine), expected);
  EXPECT_EQ(engine, nullptr);
  return fathom_last_error();
}

TEST(Engine, ReadsEngramTablesFromAnotherCopy) {
  fathom_engine_options options = options_for(kGolden);
  options.engram_path = kGolden.c_str();
  EXPECT_NE(open(options), nullptr);
  const std::string other = FATHOM_SOURCE_DIR "/tests/data/golden/g6_deep";
  options.engram_path = other.c_str();
  EXPECT_NE(opening_error(options, FATHOM_BAD_PACK).find("g6_deep"), std::string::npos);
  options.engram_path = "/nowhere";
  EXPECT_NE(opening_error(options, FATHOM_NOT_FOUND).find("/nowhere"), std::string::npos);
}

TEST(Engine, OpensAndDescribesAPack) {
  auto engine = open(options_for(kGolden + "/"));
  ASSERT_NE(engine, nullptr);
  fathom_engine_info info{};
  ASSERT_OK(fathom_engine_get_info(engine.get(), &info));
  EXPECT_STREQ(info.model_name, "g3_candidate_engram");
  EXPECT_EQ(info.vocab_size, 320);
  EXPECT_EQ(info.layers, 6);
  EXPECT_EQ(info.max_context_tokens, 115);
  EXPECT_EQ(info.step_rows, 512);
  EXPECT_TRUE(info.has_engram);
  EXPECT_FALSE(info.has_draft);
  EXPECT_FALSE(info.has_vision);
  EXPECT_GT(info.weight_bytes, 100000);
  EXPECT_LT(info.weight_bytes, info.file_bytes);
  EXPECT_STREQ(info.numerics, "official");
  EXPECT_EQ(std::string(info.backend).substr(0, 3), "cpu");
  char* text = nullptr;
  ASSERT_OK(fathom_engine_summary(engine.get(), &text));
  EXPECT_NE(std::string(text).find("6 layers"), std::string::npos) << text;
  fathom_free(text);
}

TEST(Engine, RefusesOptionsByName) {
  auto options = options_for(kGolden);
  options.numerics = "fp16";
  EXPECT_EQ(opening_error(options, FATHOM_INVALID_ARGUMENT),
            "numerics: expected one of official, exact, found \"fp16\"");
  options = options_for(kGolden);
  options.backend = "gpu";
  EXPECT_EQ(opening_error(options, FATHOM_INVALID_ARGUMENT),
            "backend: expected one of cpu, reference, found \"gpu\"");
  options = options_for(kGolden);
  options.threads = -1;
  EXPECT_EQ(opening_error(options, FATHOM_INVALID_ARGUMENT).substr(0, 8), "threads:");
  options = options_for(kGolden);
  options.size = 0;
  opening_error(options, FATHOM_INVALID_ARGUMENT);
  EXPECT_NE(opening_error(options_for("/no/such/model"), FATHOM_NOT_FOUND).find("/no/such/model"),
            std::string::npos);
}

TEST(Engine, AcceptsOptionsOfAnOlderCaller) {
  auto options = options_for(kGolden);
  options.size = offsetof(fathom_engine_options, budget_bytes);
  options.budget_bytes = 1;  // beyond what this caller knows: not read
  EXPECT_NE(open(options), nullptr);
}

TEST(Engine, IsRefusedBeforeItIsAllocated) {
  auto options = options_for(kGolden);
  options.budget_bytes = 100000;
  const std::string report = opening_error(options, FATHOM_NO_MEMORY);
  EXPECT_NE(report.find("does not fit"), std::string::npos) << report;
  EXPECT_NE(report.find("routed experts"), std::string::npos);
}

TEST(Engine, SessionsShareItsBudget) {
  auto options = options_for(kGolden);
  options.checkpoint_bytes = -1;
  fathom_memory_plan plan{};
  ASSERT_OK(fathom_plan(&options, &plan, nullptr));
  EXPECT_TRUE(plan.fits);
  EXPECT_EQ(plan.total_bytes, plan.dense_bytes + plan.expert_bytes + plan.embedding_bytes +
                                  plan.engram_projection_bytes + plan.kv_bytes + plan.tail_bytes +
                                  plan.checkpoint_bytes + plan.scratch_bytes + plan.working_bytes +
                                  plan.engram_fetch_bytes + plan.host_bytes);
  EXPECT_GT(plan.working_bytes, 0);
  EXPECT_GT(plan.program_bytes, 0);
  options.budget_bytes = plan.total_bytes + 1000;  // one session
  auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  auto first = make_session(engine.get());
  ASSERT_NE(first, nullptr);
  fathom_session* second = nullptr;
  EXPECT_EQ(fathom_session_create(engine.get(), 100, &second), FATHOM_NO_MEMORY);
  EXPECT_EQ(second, nullptr);
  first.reset();
  EXPECT_NE(make_session(engine.get()), nullptr);
  EXPECT_EQ(fathom_session_create(engine.get(), 1000, &second), FATHOM_INVALID_ARGUMENT);
}

TEST(Plan, SaysWhatFits) {
  auto options = options_for(kGolden);
  options.budget_bytes = 1;
  fathom_memory_plan plan{};
  char* report = nullptr;
  ASSERT_OK(fathom_plan(&options, &plan, &report));
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.largest_context_tokens, 0);
  EXPECT_NE(std::string(report).find("No context fits"), std::string::npos);
  fathom_free(report);
}

TEST(Plan, RefusesWhatNoSessionCanHave) {
  for (const int64_t context : {int64_t{116}, int64_t{1} << 40, INT64_MAX}) {
    auto options = options_for(kGolden);
    options.context_tokens = context;
    fathom_memory_plan plan{};
    EXPECT_EQ(fathom_plan(&options, &plan, nullptr), FATHOM_INVALID_ARGUMENT) << context;
    EXPECT_NE(std::string(fathom_last_error()).find("expected 1 to 115 tokens"), std::string::npos);
    fathom_engine* engine = nullptr;
    EXPECT_EQ(fathom_engine_open(&options, &engine), FATHOM_INVALID_ARGUMENT) << context;
  }
  auto options = options_for(kGolden);
  options.checkpoint_bytes = INT64_MAX;
  EXPECT_EQ(fathom_plan(&options, nullptr, nullptr), FATHOM_INVALID_ARGUMENT);
  options.checkpoint_bytes = 1;
  options.context_tokens = 115;
  EXPECT_OK(fathom_plan(&options, nullptr, nullptr));
}

// Every backend and thread count gives a deterministic continuation; threads do not change it.
TEST(Session, ThreadsDoNotChangeWhatIsSampled) {
  Ids texts[2];
  for (int threads = 1; threads <= 2; ++threads) {
    auto options = options_for(kGolden);
    options.threads = threads;
    auto engine = open(options);
    auto session = make_session(engine.get());
    const Ids prompt = {0, 17, 45, 99, 200, 3, 8, 250};
    ASSERT_OK(fathom_sync(session.get(), prompt.data(), prompt.size(), nullptr));
    fathom_sampling sampling;
    fathom_sampling_init(&sampling);
    sampling.seed = 5;
    for (int step = 0; step < 12; ++step) {
      int32_t token = -1;
      ASSERT_OK(fathom_sample(session.get(), &sampling, &token));
      ASSERT_OK(fathom_eval(session.get(), token));
      texts[threads - 1].push_back(token);
    }
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(Session, EvaluateShowsRowsUntilToldToStop) {
  auto engine = open(options_for(kGolden));
  auto session = make_session(engine.get()), other = make_session(engine.get());
  const Ids ids = {0, 17, 45, 99, 200, 3};
  struct Seen {
    std::vector<std::vector<float>> rows;
    size_t most = 100;
  } seen;
  const auto look = [](void* user, int64_t position, const float* logits, size_t vocab) {
    auto& all = *static_cast<Seen*>(user);
    EXPECT_EQ(position, static_cast<int64_t>(all.rows.size()));
    all.rows.emplace_back(logits, logits + vocab);
    return all.rows.size() < all.most;
  };
  ASSERT_OK(fathom_evaluate(session.get(), ids.data(), ids.size(), look, &seen));
  ASSERT_EQ(seen.rows.size(), ids.size());
  ASSERT_OK(fathom_sync(other.get(), ids.data(), 4, nullptr));
  std::vector<float> logits(320);
  ASSERT_OK(fathom_copy_logits(other.get(), logits.data(), logits.size()));
  EXPECT_EQ(seen.rows[3], logits);
  seen = {.rows = {}, .most = 2};
  fathom_session_invalidate(session.get());
  EXPECT_EQ(fathom_evaluate(session.get(), ids.data(), ids.size(), look, &seen), FATHOM_CANCELLED);
  EXPECT_EQ(seen.rows.size(), 2u);
  EXPECT_EQ(fathom_evaluate(session.get(), ids.data(), ids.size(), nullptr, nullptr), FATHOM_INVALID_ARGUMENT);
}

TEST(Quality, RefusesWhatHasNoMeaning) {
  auto engine = open(options_for(kGolden));
  const Ids ids = {0, 17, 45, 99, 200, 3};
  fathom_quality quality{};
  ASSERT_OK(fathom_measure_quality(engine.get(), ids.data(), ids.size(), nullptr, &quality));
  EXPECT_EQ(quality.tokens, 5);
  EXPECT_FALSE(quality.has_reference);
  std::vector<double> scores(5);
  auto session = make_session(engine.get());
  ASSERT_OK(fathom_score(session.get(), ids.data(), ids.size(), scores.data()));
  double sum = 0;
  for (const double score : scores) sum -= score;
  EXPECT_NEAR(quality.nll.value, sum / 5, 1e-12);

  fathom_quality_options options;
  fathom_quality_options_init(&options);
  options.reference = engine.get();
  EXPECT_EQ(fathom_measure_quality(engine.get(), ids.data(), ids.size(), &options, &quality),
            FATHOM_INVALID_ARGUMENT);
  options.reference = nullptr;
  options.reference_path = kGolden.c_str();
  EXPECT_NE(fathom_measure_quality(engine.get(), ids.data(), ids.size(), &options, &quality), FATHOM_OK);
  options.reference_path = nullptr;
  options.context_tokens = 1 << 20;
  EXPECT_EQ(fathom_measure_quality(engine.get(), ids.data(), ids.size(), &options, &quality),
            FATHOM_INVALID_ARGUMENT);
  EXPECT_EQ(fathom_measure_quality(engine.get(), ids.data(), 1, nullptr, &quality), FATHOM_INVALID_ARGUMENT);
}

TEST(Session, BatchesAndScores) {
  auto engine = open(options_for(kGolden));
  auto a = make_session(engine.get()), b = make_session(engine.get()), alone = make_session(engine.get());
  const Ids prompt = {0, 17, 45, 99, 200, 3};
  for (auto* session : {a.get(), alone.get()})
    ASSERT_OK(fathom_sync(session, prompt.data(), prompt.size(), nullptr));
  ASSERT_OK(fathom_sync(b.get(), prompt.data(), 2, nullptr));
  const std::array<fathom_session*, 2> both = {a.get(), b.get()};
  const Ids next = {8, 9};
  ASSERT_OK(fathom_eval_batch(both.data(), next.data(), 2));
  ASSERT_OK(fathom_eval(alone.get(), 8));
  std::vector<float> first(320), second(320);
  ASSERT_OK(fathom_copy_logits(a.get(), first.data(), 320));
  ASSERT_OK(fathom_copy_logits(alone.get(), second.data(), 320));
  EXPECT_EQ(first, second);
  EXPECT_EQ(fathom_session_position(b.get()), 3);
  const std::array<fathom_session*, 2> twice = {a.get(), a.get()};
  EXPECT_EQ(fathom_eval_batch(twice.data(), next.data(), 2), FATHOM_INVALID_ARGUMENT);

  std::vector<double> scores(prompt.size() - 1);
  ASSERT_OK(fathom_score(b.get(), prompt.data(), prompt.size(), scores.data()));
  for (const double score : scores) EXPECT_LT(score, 0);
  double of_first = 0;
  ASSERT_OK(fathom_sync(alone.get(), prompt.data(), 1, nullptr));
  ASSERT_OK(fathom_token_logprob(alone.get(), prompt[1], &of_first));
  EXPECT_EQ(scores[0], of_first);
}

TEST(Session, SnapshotsStayWithTheirEngine) {
  auto one = open(options_for(kGolden)), other = open(options_for(kGolden));
  auto session = make_session(one.get()), foreign = make_session(other.get());
  const Ids prompt = {0, 17, 45};
  ASSERT_OK(fathom_sync(session.get(), prompt.data(), prompt.size(), nullptr));
  fathom_snapshot* snapshot = nullptr;
  ASSERT_OK(fathom_snapshot_take(session.get(), &snapshot));
  EXPECT_EQ(fathom_snapshot_restore(foreign.get(), snapshot), FATHOM_INVALID_ARGUMENT);
  fathom_snapshot_free(snapshot);
}

TEST(Session, ErrorsLeaveOutputsAlone) {
  auto engine = open(options_for(kGolden));
  auto session = make_session(engine.get());
  fathom_sync_result result{FATHOM_RESTORED, 77, 78};
  EXPECT_EQ(fathom_sync(session.get(), nullptr, 0, &result), FATHOM_INVALID_ARGUMENT);
  EXPECT_EQ(fathom_sync(session.get(), nullptr, 4, &result), FATHOM_INVALID_ARGUMENT);
  const Ids outside = {1, 2, 320};
  EXPECT_EQ(fathom_sync(session.get(), outside.data(), 3, &result), FATHOM_INVALID_ARGUMENT);
  EXPECT_STREQ(fathom_last_error(), "token 320 at position 2: expected 0 to 319");
  const Ids many(101, 5);
  EXPECT_EQ(fathom_sync(session.get(), many.data(), many.size(), &result), FATHOM_CONTEXT_FULL);
  EXPECT_EQ(result.reused_tokens, 77);
  EXPECT_EQ(fathom_sync(nullptr, many.data(), 1, &result), FATHOM_INVALID_ARGUMENT);
  int32_t token = -7;
  EXPECT_EQ(fathom_argmax(session.get(), nullptr, 0, &token), FATHOM_STATE);
  EXPECT_EQ(token, -7);
  const Ids one = {5};
  ASSERT_OK(fathom_sync(session.get(), one.data(), 1, nullptr));
  fathom_sampling sampling;
  fathom_sampling_init(&sampling);
  sampling.top_p = 2;
  EXPECT_EQ(fathom_sample(session.get(), &sampling, &token), FATHOM_INVALID_ARGUMENT);
  EXPECT_EQ(token, -7);
}

TEST(Session, ProgressCancels) {
  auto options = options_for(kGolden);
  options.step_rows = 8;
  auto engine = open(options);
  auto session = make_session(engine.get());
  int calls = 0;
  fathom_session_set_progress(
      session.get(), [](void* user, const fathom_progress*) { return ++*static_cast<int*>(user) < 3; },
      &calls);
  const Ids prompt(40, 9);
  EXPECT_EQ(fathom_sync(session.get(), prompt.data(), prompt.size(), nullptr), FATHOM_CANCELLED);
  EXPECT_EQ(fathom_session_position(session.get()), 16);
  fathom_session_set_progress(session.get(), nullptr, nullptr);
  fathom_sync_result result;
  ASSERT_OK(fathom_sync(session.get(), prompt.data(), prompt.size(), &result));
  EXPECT_EQ(result.action, FATHOM_EXTENDED);
  EXPECT_EQ(result.reused_tokens, 16);
}

class Text : public testing::Test {
 protected:
  void SetUp() override {
    fathom_tokenizer* opened = nullptr;
    ASSERT_OK(fathom_tokenizer_open(kMini.c_str(), &opened));
    tokenizer_.reset(opened);
  }
  Ids encode(const std::string& text, bool special) {
    int32_t* ids = nullptr;
    size_t count = 0;
    EXPECT_OK(fathom_tokenize(tokenizer_.get(), text.data(), text.size(), special, &ids, &count));
    const Ids result(ids, ids + count);
    fathom_free(ids);
    return result;
  }
  Owned<fathom_tokenizer> tokenizer_;
};

TEST_F(Text, SpecialsOnlyWhenAsked) {
  const int32_t open = fathom_token_id(tokenizer_.get(), FATHOM_TOKEN_THINK_OPEN);
  ASSERT_GE(open, 0);
  EXPECT_EQ(encode("<think>", true), Ids{open});
  EXPECT_GT(encode("<think>", false).size(), 1u);
  EXPECT_EQ(fathom_find_token(tokenizer_.get(), "<think>", 7), open);
  EXPECT_EQ(fathom_find_token(tokenizer_.get(), "no such token", 13), -1);
  size_t bytes = 0;
  const char* text = fathom_token_bytes(tokenizer_.get(), open, &bytes);
  EXPECT_EQ(std::string(text, bytes), "<think>");
  EXPECT_EQ(fathom_token_bytes(tokenizer_.get(), 99999999, &bytes), nullptr);
  EXPECT_EQ(bytes, 0u);
  EXPECT_TRUE(encode("", false).empty());
}

TEST_F(Text, StopsAreEndsOfAnswers) {
  const auto id = [&](fathom_token token) { return fathom_token_id(tokenizer_.get(), token); };
  EXPECT_EQ(id(FATHOM_TOKEN_EOS), 1);
  EXPECT_TRUE(fathom_is_stop(tokenizer_.get(), id(FATHOM_TOKEN_EOS)));
  EXPECT_TRUE(fathom_is_stop(tokenizer_.get(), id(FATHOM_TOKEN_USER)));
  EXPECT_FALSE(fathom_is_stop(tokenizer_.get(), id(FATHOM_TOKEN_THINK_CLOSE)));
  EXPECT_FALSE(fathom_is_stop(tokenizer_.get(), -1));
}

TEST_F(Text, RendersAndParsesATurn) {
  fathom_prompt prompt{};
  ASSERT_OK(fathom_chat_render(
      tokenizer_.get(), R"({"messages": [{"role": "user", "content": "Hi <think>"}], "thinking": true})",
      &prompt));
  EXPECT_GT(prompt.count, 3u);
  EXPECT_LE(prompt.stable_count, prompt.count);
  EXPECT_EQ(prompt.image_count, 0u);
  EXPECT_TRUE(prompt.starts_in_thinking);
  EXPECT_EQ(prompt.ids[0], fathom_token_id(tokenizer_.get(), FATHOM_TOKEN_BOS));
  EXPECT_NE(std::string(prompt.text).find("Hi <think>"), std::string::npos);

  fathom_parser* made = nullptr;
  ASSERT_OK(fathom_parser_create(tokenizer_.get(), prompt.starts_in_thinking, nullptr, &made));
  const Owned<fathom_parser> parser(made);
  fathom_prompt_free(&prompt);
  EXPECT_EQ(prompt.ids, nullptr);

  Ids answer = encode("Let me see.", false);
  answer.push_back(fathom_token_id(tokenizer_.get(), FATHOM_TOKEN_THINK_CLOSE));
  for (const int32_t id : encode("Hello, world!", false)) answer.push_back(id);
  answer.push_back(fathom_token_id(tokenizer_.get(), FATHOM_TOKEN_EOS));
  std::string reasoning, content;
  const fathom_event* events = nullptr;
  size_t count = 0;
  const auto take = [&] {
    for (size_t index = 0; index < count; ++index)
      (events[index].kind == FATHOM_EVENT_REASONING ? reasoning : content)
          .append(events[index].text, events[index].text_bytes);
  };
  for (const int32_t id : answer) {
    EXPECT_EQ(fathom_parser_end(parser.get()), FATHOM_TURN_OPEN);
    ASSERT_OK(fathom_parser_feed(parser.get(), &id, 1, &events, &count));
    take();
  }
  EXPECT_EQ(fathom_parser_end(parser.get()), FATHOM_TURN_EOS);
  ASSERT_OK(fathom_parser_finish(parser.get(), &events, &count));
  take();
  EXPECT_EQ(reasoning, "Let me see.");
  EXPECT_EQ(content, "Hello, world!");
  char* json = nullptr;
  ASSERT_OK(fathom_parser_message(parser.get(), &json));
  const auto message = nlohmann::json::parse(json);
  fathom_free(json);
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["content"], "Hello, world!");
  EXPECT_EQ(message["reasoning_content"], "Let me see.");
  // What comes out goes in again.
  const std::string next = R"({"messages": [{"role": "user", "content": "Hi"}, )" + message.dump() +
                           R"(, {"role": "user", "content": "And?"}]})";
  ASSERT_OK(fathom_chat_render(tokenizer_.get(), next.c_str(), &prompt));
  fathom_prompt_free(&prompt);
  EXPECT_EQ(fathom_chat_render(tokenizer_.get(), "{}", &prompt), FATHOM_INVALID_ARGUMENT);
}

TEST(Inspect, CountsAPackAndItsReads) {
  const auto inspection = fathom::capi::inspect_pack(kGolden);
  ASSERT_TRUE(inspection.ok()) << inspection.error().message;
  EXPECT_TRUE(inspection->problems.empty()) << inspection->problems.front();
  const int64_t all = inspection->groups.at("routed experts").at("I8").bytes +
                      inspection->groups.at("routed experts").at("F8_E8M0").bytes;
  EXPECT_EQ(all, inspection->weights.expert_bytes);
  const fathom::capi::TokenReads& reads = inspection->reads.back();
  EXPECT_EQ(reads.expert_bytes, inspection->weights.expert_bytes / inspection->config.routed_experts *
                                    inspection->config.experts_per_token);
  EXPECT_EQ(reads.embedding_bytes, 320 * 128 * 2 + 128 * 2);
  EXPECT_EQ(reads.position, 115);
}

TEST(Inspect, ReadsAsTheSpecificationSays) {
  // Rows 38 x 512 x 288, rings 40 x 128 x 528, keys 3 (N/2) 68 + N 68 + 4 min(N, 16384) 68 at N = 131072.
  fathom::ModelConfig config;
  config.num_layers = 40;
  config.head_dim = 512;
  config.index_head_dim = 128;
  config.sliding_window = 128;
  config.index_topk = 512;
  config.candidate_source_layer_id = 20;
  config.candidate_topk_blocks = 128;
  config.candidate_block_size = 128;
  config.compress_ratios.assign(40, 1);
  for (size_t layer = 0; layer < 20; ++layer) config.compress_ratios[layer] = layer < 2 ? 0 : 2;
  config.kv_source_layer_ids = {2, 8, 14, 20};
  config.index_source_layer_ids = {2, 8, 14, 20, 24, 28, 32, 36};
  const int64_t n = 131072;
  const auto reads = fathom::capi::reads_of_token(config, {}, 0, 0, n);
  EXPECT_EQ(reads.kv_bytes,
            38 * 512 * 288 + 40 * 128 * 528 + 3 * (n / 2) * 68 + n * 68 + int64_t{4} * 16384 * 68);
}

TEST(Inspect, IsQuickAndParsesAsJson) {
  const auto begin = std::chrono::steady_clock::now();
  char* report = nullptr;
  size_t problems = 99;
  ASSERT_OK(fathom_inspect(kMini.c_str(), true, &report, &problems));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 5);  // well below a second on an idle machine
  const auto root = nlohmann::json::parse(report);
  fathom_free(report);
  EXPECT_EQ(problems, 0u);
  EXPECT_EQ(root["config"]["layers"], 8);
  EXPECT_EQ(root["engram"]["tables"].size(), 2u);
  EXPECT_EQ(root["engram"]["token_map_sha256"].get<std::string>().size(), 64u);
  EXPECT_TRUE(root["has_draft"].get<bool>());
  EXPECT_EQ(root["missing"].size(), 0u);
  ASSERT_OK(fathom_inspect(kMini.c_str(), false, &report, nullptr));
  EXPECT_NE(std::string(report).find("Problems: none"), std::string::npos) << report;
  fathom_free(report);
  EXPECT_EQ(fathom_inspect("/no/such/model", false, &report, nullptr), FATHOM_NOT_FOUND);
}

TEST(Inspect, TellsOfTruncatedFiles) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "inspect_truncated";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(kGolden, folder);
  std::filesystem::resize_file(folder / "model.safetensors", 1000000);
  char* report = nullptr;
  size_t problems = 0;
  ASSERT_OK(fathom_inspect(folder.c_str(), false, &report, &problems));
  EXPECT_GT(problems, 0u);
  EXPECT_NE(std::string(report).find("model.safetensors"), std::string::npos) << report;
  fathom_free(report);
  EXPECT_NE(opening_error(options_for(folder.string()), FATHOM_BAD_PACK).find("model.safetensors"),
            std::string::npos);
  // The full length, but mostly a hole.
  std::filesystem::resize_file(folder / "model.safetensors", 100 << 20);
  ASSERT_OK(fathom_inspect(folder.c_str(), false, &report, &problems));
  EXPECT_NE(std::string(report).find("sparse"), std::string::npos) << report;
  fathom_free(report);
  std::filesystem::remove_all(folder);
}

TEST(Names, OfStatuses) {
  EXPECT_STREQ(fathom_status_name(FATHOM_NO_MEMORY), "no memory");
  EXPECT_STREQ(fathom_status_name(static_cast<fathom_status>(15)), "unknown status");
  EXPECT_NE(std::string(fathom_version()), "");
}

}  // namespace
