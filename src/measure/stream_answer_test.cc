#include <gtest/gtest.h>

#include "measure/http_target.h"

namespace fathom::measure {
namespace {

StreamShape shape_of(const char* driver) { return load_driver(driver)->completion->stream; }

std::vector<ServerEvent> events_of(std::initializer_list<const char*> texts) {
  std::vector<ServerEvent> events;
  for (const char* text : texts) events.push_back({static_cast<int64_t>(events.size() + 1) * 10, "", text});
  return events;
}

StreamEnd done() { return {.sent_ns = 1, .ended_ns = 1000, .is_done = true, .error = ""}; }

TEST(StreamAnswer, ReadsIdsTimesAndClaims) {
  const std::vector<int32_t> sent{7, 8, 9};
  const Generation answer = read_answer(
      shape_of("fathom"), true,
      events_of(
          {R"({"choices":[{"text":"","prompt_token_ids":[7,8,9]}],"usage":null})",
           R"({"choices":[{"text":"","token_ids":[5]}]})", R"({"choices":[{"text":" ab","token_ids":[6,4]}]})",
           R"({"choices":[{"text":"","finish_reason":"length"}],"timings":{"prefill_ms":250,"decode_ms":1500}})",
           R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":3,
               "prompt_tokens_details":{"cached_tokens":2}}})"}),
      done(), &sent);
  EXPECT_EQ(answer.error, "");
  EXPECT_EQ(answer.ids, (std::vector<int32_t>{5, 6, 4}));
  EXPECT_EQ(answer.token_ns, (std::vector<int64_t>{20, 30, 30}));
  EXPECT_EQ(answer.text, " ab");
  EXPECT_EQ(answer.finish_reason, "length");
  EXPECT_EQ(answer.sent_ns, 1);
  EXPECT_EQ(answer.ended_ns, 1000);
  EXPECT_EQ(answer.claimed_prompt_tokens, 3);
  EXPECT_EQ(answer.claimed_cached_tokens, 2);
  EXPECT_EQ(answer.claimed_output_tokens, 3);
  EXPECT_DOUBLE_EQ(*answer.claimed_prefill_s, 0.25);
  EXPECT_DOUBLE_EQ(*answer.claimed_decode_s, 1.5);
  EXPECT_FALSE(answer.prefill_end_ns.has_value());
}

TEST(StreamAnswer, WithoutIdsAPieceOfTextIsAnEntry) {
  const Generation answer = read_answer(
      shape_of("openai"), false,
      events_of(
          {R"({"choices":[{"text":""}]})", R"({"choices":[{"text":"one "}]})", R"({"choices":[{"text":"two"}]})",
           R"({"choices":[{"text":"","finish_reason":"stop"}],
               "usage":{"prompt_tokens":9,"completion_tokens":5}})"}),
      done(), nullptr);
  EXPECT_EQ(answer.error, "");
  EXPECT_EQ(answer.text, "one two");
  EXPECT_EQ(answer.token_ns, (std::vector<int64_t>{20, 30}));
  EXPECT_TRUE(answer.ids.empty());
  EXPECT_EQ(answer.claimed_output_tokens, 5);
  EXPECT_FALSE(answer.claimed_cached_tokens.has_value());
}

TEST(StreamAnswer, AccumulatedIdsAndTextAreTakenApart) {
  const auto read = [](std::initializer_list<const char*> texts) {
    return read_answer(shape_of("sglang"), true, events_of(texts), done(), nullptr);
  };
  const Generation answer = read(
      {R"({"text":"a","output_ids":[3],"meta_info":{"completion_tokens":1,"finish_reason":null}})",
       R"({"text":"abc","output_ids":[3,4,5],"meta_info":{"completion_tokens":3}})",
       R"({"text":"abc","output_ids":[3,4,5],
            "meta_info":{"completion_tokens":3,"cached_tokens":0,"finish_reason":{"type":"length"}}})"});
  EXPECT_EQ(answer.error, "");
  EXPECT_EQ(answer.ids, (std::vector<int32_t>{3, 4, 5}));
  EXPECT_EQ(answer.token_ns, (std::vector<int64_t>{10, 20, 20}));
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(answer.finish_reason, "length");
  EXPECT_EQ(answer.claimed_cached_tokens, 0);
  // A server that sends only what is new, taken for one that sends all.
  EXPECT_EQ(read({R"({"output_ids":[3]})", R"({"output_ids":[4]})"}).error,
            "wrong ids: event 2 does not go on from the 1 before it");
}

TEST(StreamAnswer, TheEndOfThePromptIsWhenAllOfItIsDone) {
  const auto events = events_of(
      {R"({"content":"","tokens":[],"stop":false,"prompt_progress":{"total":8,"processed":4}})",
       R"({"content":"","tokens":[],"stop":false,"prompt_progress":{"total":8,"processed":8}})",
       R"({"content":"a","tokens":[3],"stop":false})",
       R"({"content":"","tokens":[],"stop":true,"stop_type":"limit","tokens_predicted":1,
           "tokens_evaluated":8,"timings":{"cache_n":5,"prompt_ms":2}})"});
  StreamEnd end = done();
  end.is_done = false;  // this dialect has none
  const Generation answer = read_answer(shape_of("llama_cpp"), true, events, end, nullptr);
  EXPECT_EQ(answer.error, "");
  EXPECT_EQ(answer.prefill_end_ns, 20);
  EXPECT_EQ(answer.claimed_cached_tokens, 5);
  EXPECT_EQ(answer.claimed_prompt_tokens, 8);
  EXPECT_EQ(answer.finish_reason, "limit");
  auto late = events;
  late[1].arrived_ns = 35;  // after the first token
  EXPECT_FALSE(read_answer(shape_of("llama_cpp"), true, late, end, nullptr).prefill_end_ns.has_value());
}

TEST(StreamAnswer, NamesWrongIds) {
  const std::vector<int32_t> sent{7, 8, 9};
  const auto error = [&](std::initializer_list<const char*> texts) {
    return read_answer(shape_of("fathom"), true, events_of(texts), done(), &sent).error;
  };
  EXPECT_EQ(error({R"({"choices":[{"prompt_token_ids":[7,5,9]}]})"}),
            "wrong ids: at position 1 of the prompt 8 was sent and 5 arrived");
  EXPECT_EQ(error({R"({"choices":[{"prompt_token_ids":[7,8]}]})"}),
            "wrong ids: at position 2 of the prompt 9 was sent and nothing arrived");
  EXPECT_EQ(error({R"({"choices":[{"prompt_token_ids":[7,8,9,1]}]})"}),
            "wrong ids: at position 3 of the prompt nothing was sent and 1 arrived");
  EXPECT_EQ(error({R"({"choices":[],"usage":{"prompt_tokens":4}})"}),
            "wrong ids: 3 were sent and the server counts 4");
  EXPECT_EQ(error({R"({"choices":[{"token_ids":[1,-2]}]})"}), "wrong ids: event 1 has [1,-2]");
  EXPECT_EQ(error({R"({"choices":[{"token_ids":["a"]}]})"}), "wrong ids: event 1 has [\"a\"]");
  EXPECT_EQ(error({R"({"choices":[{"token_ids":[99999999999]}]})"}), "wrong ids: event 1 has [99999999999]");
  EXPECT_EQ(error({R"({"choices":[{"token_ids":[5],"finish_reason":"length"}],"usage":{"completion_tokens":2}})"}),
            "wrong ids: 1 came and the server counts 2");
  EXPECT_EQ(error({R"({"choices":[{"token_ids":[5],"finish_reason":"stop"}],"usage":{"completion_tokens":2}})"}),
            "");
  EXPECT_EQ(error({R"({"choices":[{"text":"a"}],"usage":{"completion_tokens":4}})"}),
            "wrong ids: 0 came and the server counts 4");
}

TEST(StreamAnswer, KeepsWhatWasSeenBeforeAnError) {
  const auto read = [&](std::initializer_list<const char*> texts, const StreamEnd& end) {
    return read_answer(shape_of("fathom"), true, events_of(texts), end, nullptr);
  };
  const char* token = R"({"choices":[{"text":"a","token_ids":[5]}]})";
  Generation answer = read({token, R"({"error":{"message":"out of memory"}})"}, {.error = "stream cut: it says"});
  EXPECT_EQ(answer.error, "the server says: out of memory");
  EXPECT_EQ(answer.ids, std::vector<int32_t>{5});
  answer = read({token, R"({"error":"plain"})"}, done());
  EXPECT_EQ(answer.error, "the server says: {\"error\":\"plain\"}");
  answer = read({token, "{nonsense"}, done());
  EXPECT_EQ(answer.error, "not JSON: event 2 is {nonsense");
  EXPECT_EQ(answer.token_ns, std::vector<int64_t>{10});
  answer = read({token}, {.error = "silence: not one byte for 3 s"});
  EXPECT_EQ(answer.error, "silence: not one byte for 3 s");
  answer = read({token}, {});
  EXPECT_EQ(answer.error, "stream cut: it closed without [DONE]");
  EXPECT_EQ(read_answer(shape_of("llama_cpp"), true, {}, done(), nullptr).error,
            "stream cut: it closed without its last event");
}

}  // namespace
}  // namespace fathom::measure
