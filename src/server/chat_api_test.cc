#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "base/log.h"
#include "server/test_exchange.h"

namespace fathom {
namespace {

const std::string kCalls = kOpenCalls + kWeather + kCloseCalls;
const std::string kArguments = R"({"city": "Paris \"<&>\"\n2", "days": 3})";

Json tools() {
  return Json::parse(R"([{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}])");
}
Json chat(bool thinking = false) {
  return {{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}, {"thinking", thinking}, {"seed", 1}};
}
Json script_of(const std::string& text, bool bytes = false) {
  return {{"answers", Json::array({{{"text", text}, {"bytes", bytes}, {"uses", -1}}})}};
}

/// A streamed answer put together again, with what every stream must keep to.
struct Streamed {
  std::string content, reasoning, finish_reason;
  std::vector<Json> calls;  // name, arguments, id
  std::vector<int32_t> ids;
  Json details, usage;
  int finish_chunks = 0, argument_deltas = 0;
};
Streamed put_together(const TestExchange& exchange) {
  Streamed result;
  bool finished = false, done = false;
  for (const TestEvent& event : read_events(exchange.body())) {
    EXPECT_FALSE(done) << "something after [DONE]";
    if (event.text == "[DONE]") {
      done = true;
      continue;
    }
    const Json chunk = event.json();
    EXPECT_FALSE(chunk.is_discarded()) << event.text;
    if (chunk.contains("usage") && !chunk["usage"].is_null()) {
      EXPECT_TRUE(finished);
      EXPECT_TRUE(chunk["choices"].empty());
      result.usage = chunk["usage"];
      continue;
    }
    if (!chunk.contains("choices")) continue;
    const Json& choice = chunk["choices"][0];
    EXPECT_FALSE(finished) << "a chunk after the last one";
    const Json& delta = choice["delta"];
    if (delta.contains("content")) result.content += delta["content"].get<std::string>();
    if (delta.contains("reasoning_content")) result.reasoning += delta["reasoning_content"].get<std::string>();
    if (choice.contains("token_ids"))
      for (const Json& id : choice["token_ids"]) result.ids.push_back(id);
    if (delta.contains("tool_calls")) {
      const Json& call = delta["tool_calls"][0];
      const size_t index = call["index"];
      if (index == result.calls.size()) {
        EXPECT_TRUE(call.contains("id") && call["type"] == "function");
        result.calls.push_back({{"id", call["id"]}, {"name", call["function"]["name"]}, {"arguments", ""}});
      } else {
        EXPECT_LT(index, result.calls.size());
        EXPECT_FALSE(call.contains("id") || call.contains("type") || call["function"].contains("name"));
        ++result.argument_deltas;
      }
      Json& arguments = result.calls[index]["arguments"];
      arguments = arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
    }
    if (choice["finish_reason"].is_null()) continue;
    finished = true;
    ++result.finish_chunks;
    result.finish_reason = choice["finish_reason"];
    result.details = choice["finish_details"];
  }
  EXPECT_TRUE(done);
  return result;
}

Streamed stream(TestService& service, Json request) {
  request["stream"] = true;
  const auto exchange = service.post("/v1/chat/completions", request);
  EXPECT_EQ(exchange->status(), 200) << exchange->body();
  EXPECT_TRUE(exchange->whole());
  return put_together(*exchange);
}
Json whole(TestService& service, const Json& request) {
  const auto exchange = service.post("/v1/chat/completions", request);
  EXPECT_EQ(exchange->status(), 200) << exchange->body();
  return exchange->json();
}

// Whole and streamed, each token cut as the model would and each byte alone: all must say the same.
void expect_answer(const std::string& text, const Json& request, const std::string& reasoning,
                   const std::string& content, int calls, const std::string& finish) {
  for (const bool bytes : {false, true}) {
    TestService service(script_of(text, bytes));
    const Json choice = whole(service, request)["choices"][0];
    EXPECT_EQ(choice["message"].value("reasoning_content", ""), reasoning);
    EXPECT_EQ(choice["message"]["content"].is_null() ? "" : choice["message"]["content"], content);
    EXPECT_EQ(choice["message"].value("tool_calls", Json::array()).size(), static_cast<size_t>(calls));
    EXPECT_EQ(choice["finish_reason"], finish);
    const Streamed streamed = stream(service, request);
    EXPECT_EQ(streamed.reasoning, reasoning);
    EXPECT_EQ(streamed.content, content);
    EXPECT_EQ(streamed.calls.size(), static_cast<size_t>(calls));
    EXPECT_EQ(streamed.finish_reason, finish);
    EXPECT_EQ(streamed.finish_chunks, 1);
    EXPECT_EQ(streamed.details, choice["finish_details"]);
    for (const Json& call : streamed.calls) EXPECT_EQ(call["arguments"], kArguments);
    for (const Json& call : choice["message"].value("tool_calls", Json::array()))
      EXPECT_EQ(call["function"]["arguments"], kArguments);
  }
}

TEST(ChatApi, SplitsReasoningContentAndCallsWhereverTokensAreCut) {
  Json thinking = chat(true);
  thinking["tools"] = tools();
  Json plain = chat();
  plain["tools"] = tools();
  expect_answer("Hello, 안녕 👋" + kEos, chat(), "", "Hello, 안녕 👋", 0, "stop");
  expect_answer("I think.</think>Yes." + kEos, chat(true), "I think.", "Yes.", 0, "stop");
  expect_answer("Look:" + kCalls + kEos, plain, "", "Look:", 1, "tool_calls");
  // A call right behind the reasoning, inside of it, and inside with the end of the reasoning after it.
  expect_answer("I need it.</think>" + kCalls + kEos, thinking, "I need it.", "", 1, "tool_calls");
  expect_answer("I need it." + kCalls + kEos, thinking, "I need it.", "", 1, "tool_calls");
  expect_answer("I need it." + kCalls + "</think>" + kEos, thinking, "I need it.", "", 1, "tool_calls");
}

TEST(ChatApi, SaysWhenReasoningWasNeverClosed) {
  TestService service(script_of("only thoughts" + kEos));
  const Json choice = whole(service, chat(true))["choices"][0];
  EXPECT_EQ(choice["message"]["reasoning_content"], "only thoughts");
  EXPECT_EQ(choice["message"]["content"], "");
  EXPECT_EQ(choice["finish_details"]["reasoning_unclosed"], true);
  EXPECT_EQ(choice.dump().find("end▁of"), std::string::npos);
}

TEST(ChatApi, NeverPresentsACutCallAsWhole) {
  Json request = chat();
  request["tools"] = tools();
  const auto& tokenizer = test_tokenizer();
  const size_t length = tokenizer.encode_with_special(kCalls).size();
  for (size_t limit = 1; limit < length; ++limit) {
    TestService service(script_of(kCalls + kEos));
    request["max_tokens"] = limit;
    const Json choice = whole(service, request)["choices"][0];
    const bool call_is_whole = choice["message"].contains("tool_calls");
    EXPECT_EQ(choice["finish_reason"], "length") << limit;
    EXPECT_EQ(choice["finish_details"]["type"], "max_tokens");
    if (call_is_whole) {
      EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], kArguments);
    }
    const Streamed streamed = stream(service, request);
    EXPECT_EQ(streamed.finish_reason, "length");
    if (!call_is_whole && !streamed.calls.empty()) {
      const auto arguments = streamed.calls[0]["arguments"].get<std::string>();
      EXPECT_TRUE(Json::parse(arguments, nullptr, false).is_discarded()) << arguments;
      EXPECT_EQ(streamed.details["incomplete_call"], "get_weather");
    }
  }
}

TEST(ChatApi, StreamsOneCallInManyPieces) {
  Json request = chat();
  request["tools"] = tools();
  std::string text = kCalls;
  text.replace(text.find("Paris"), 5, std::string(200, 'x'));
  TestService service(script_of(text + kEos, true));
  const Streamed streamed = stream(service, request);
  ASSERT_EQ(streamed.calls.size(), 1u);
  EXPECT_GT(streamed.argument_deltas, 40);
  EXPECT_EQ(Json::parse(streamed.calls[0]["arguments"].get<std::string>())["days"], 3);
}

TEST(ChatApi, StopsAtStringsThatSpanTokensAndLeaksNothingOfThem) {
  for (const bool bytes : {false, true}) {
    TestService service(script_of("L M N O P Q R S" + kEos, bytes));
    Json request = chat();
    request["stop"] = "O P Q";
    const Json choice = whole(service, request)["choices"][0];
    EXPECT_EQ(choice["message"]["content"], "L M N ");
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(choice["finish_details"]["type"], "stop_string");
    EXPECT_EQ(choice["finish_details"]["stop_string"], "O P Q");
    EXPECT_EQ(stream(service, request).content, "L M N ");
    // Held back and then not part of a stop string: it comes, also when the answer ends by its limit.
    request["stop"] = Json::array({"Q R S T"});
    EXPECT_EQ(stream(service, request).content, "L M N O P Q R S");
  }
}

TEST(ChatApi, StopStringsLeaveReasoningAlone) {
  TestService service(script_of("a STOP b</think>c STOP d" + kEos));
  Json request = chat(true);
  request["stop"] = "STOP";
  const Streamed streamed = stream(service, request);
  EXPECT_EQ(streamed.reasoning, "a STOP b");
  EXPECT_EQ(streamed.content, "c ");
}

TEST(ChatApi, TellsTokenIdsLogprobsAndUsage) {
  TestService service(script_of("Hello there" + kEos));
  Json request = chat();
  request.update({{"return_token_ids", true}, {"logprobs", true}, {"top_logprobs", 2}});
  const Json answer = whole(service, request);
  const Json& choice = answer["choices"][0];
  const std::vector<int32_t> expected = test_tokenizer().encode_with_special("Hello there" + kEos);
  EXPECT_EQ(choice["token_ids"], Json(expected));
  ASSERT_EQ(choice["logprobs"]["content"].size(), expected.size());
  EXPECT_EQ(choice["logprobs"]["content"][0]["logprob"], -0.5);
  EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(answer["usage"]["completion_tokens"], expected.size());
  EXPECT_EQ(answer["usage"]["prompt_tokens"], answer["prompt_token_ids"].size());
  EXPECT_TRUE(answer["timings"].contains("prefill_tokens_per_second"));

  request["stream_options"] = {{"include_usage", true}};
  const Streamed streamed = stream(service, request);
  EXPECT_EQ(streamed.ids, expected);
  EXPECT_EQ(streamed.usage["completion_tokens"], expected.size());
  EXPECT_TRUE(streamed.usage["prompt_tokens_details"].contains("cached_tokens"));

  // The same ids in are the same prompt.
  Json by_ids{{"prompt_token_ids", answer["prompt_token_ids"]}};
  EXPECT_EQ(whole(service, by_ids)["usage"]["prompt_tokens"], answer["usage"]["prompt_tokens"]);
}

TEST(ChatApi, GivesSeveralAnswers) {
  TestService service(script_of("one" + kEos));
  Json request = chat();
  request["n"] = 3;
  const Json answer = whole(service, request);
  ASSERT_EQ(answer["choices"].size(), 3u);
  for (int index = 0; index < 3; ++index) {
    EXPECT_EQ(answer["choices"][index]["index"], index);
    EXPECT_EQ(answer["choices"][index]["message"]["content"], "one");
  }
  request["stream"] = true;
  const auto exchange = service.post("/v1/chat/completions", request);
  std::map<int, int> finishes;
  for (const TestEvent& event : read_events(exchange->body())) {
    const Json chunk = event.json();
    if (chunk.is_discarded() || chunk["choices"].empty()) continue;
    finishes[chunk["choices"][0]["index"]] += !chunk["choices"][0]["finish_reason"].is_null();
  }
  EXPECT_EQ(finishes, (std::map<int, int>{{0, 1}, {1, 1}, {2, 1}}));
}

TEST(ChatApi, ReportsLoopsAndEndsThemIfAsked) {
  const Json script{{"answers", Json::array({{{"text", "again and again, "}, {"repeat", 60}, {"uses", -1}}})}};
  ServiceOptions options;
  options.defaults.loop_guard.mode = LoopGuardMode::kObserve;
  std::mutex mutex;
  std::string log;
  set_log_sink([&](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    log.append(line).append("\n");
  });
  TestService service(script, options);
  Json request = chat();
  Json choice = whole(service, request)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_GT(choice["finish_details"]["loop_observed"]["repeats"], 4);
  request["loop_guard"] = "stop";
  choice = whole(service, request)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["finish_details"]["type"], "loop");
  EXPECT_EQ(choice["finish_details"]["period"], test_tokenizer().encode("again and again, ").size());
  EXPECT_EQ(choice["finish_details"]["first_token"], 0);
  const auto exchange = service.post("/v1/chat/completions", request);
  EXPECT_EQ(exchange->header("X-Fathom-Finish"), "loop");
  set_log_sink({});
  EXPECT_NE(log.find("the answer repeats"), std::string::npos) << log;
  EXPECT_NE(log.find("it was ended"), std::string::npos) << log;
  const auto metrics = service.get("/metrics");
  EXPECT_NE(metrics->body().find("fathom_requests_finished_total{cause=\"loop\"} 2"), std::string::npos);
  request["loop_guard"] = "off";
  EXPECT_FALSE(whole(service, request)["choices"][0]["finish_details"].contains("loop_observed"));
}

TEST(ChatApi, TellsContextFullFromTheRequestsOwnLimit) {
  Json script = script_of("word ", false);
  script["context_tokens"] = 20;
  script["answers"][0]["repeat"] = 100;
  TestService service(script);
  Json request = chat();
  Json choice = whole(service, request)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["finish_details"]["type"], "context_full");
  request["max_tokens"] = 3;
  choice = whole(service, request)["choices"][0];
  EXPECT_EQ(choice["finish_details"]["type"], "max_tokens");
  request["messages"][0]["content"] = std::string(400, 'x');
  const auto refused = service.post("/v1/chat/completions", request);
  EXPECT_EQ(refused->status(), 400);
  EXPECT_EQ(refused->json()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(refused->json()["error"]["param"], "messages");
  EXPECT_NE(refused->body().find("20"), std::string::npos);
  request = chat();
  request["n"] = 64;  // more than will ever run and wait
  script["queue_limit"] = 2;
  TestService small(script);
  EXPECT_EQ(small.post("/v1/chat/completions", request)->status(), 400);
}

TEST(ChatApi, SaysThatTheBackendFailed) {
  Json script = script_of("Hello there, and more" + kEos);
  script["answers"][0]["fail_after"] = 2;
  script["answers"][0]["fail_message"] = "a disk fell off";
  TestService service(script);
  const auto exchange = service.post("/v1/chat/completions", chat());
  EXPECT_EQ(exchange->status(), 500);
  EXPECT_NE(exchange->body().find("a disk fell off"), std::string::npos);
  Json request = chat();
  request["stream"] = true;
  const auto stream = service.post("/v1/chat/completions", request);
  EXPECT_EQ(stream->status(), 200);
  const std::vector<TestEvent> events = read_events(stream->body());
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().json()["error"]["message"], "a disk fell off");
  EXPECT_EQ(stream->body().find("[DONE]"), std::string::npos);
}

TEST(ChatApi, StreamsHeadersAtOnceAndLivesDuringPrefill) {
  Json script = script_of("late" + kEos);
  script["answers"][0]["prefill_ms"] = 600000;
  ServiceOptions options;
  options.keep_alive_interval = std::chrono::milliseconds(40);
  TestService service(script, options);
  Json request = chat();
  request["stream"] = true;
  const auto exchange = service.start("POST", "/v1/chat/completions", request.dump());
  exchange->wait_for(": waiting");
  EXPECT_EQ(exchange->status(), 200);
  exchange->leave();
  exchange->wait();  // ended long before the prefill would have
  EXPECT_EQ(
      service.generator().status().statistics.requests_finished[static_cast<size_t>(FinishCause::kCancelled)],
      1);
}

TEST(ChatApi, FreesTheSlotOfAClientThatLeft) {
  Json script{{"slots", 1},
              {"answers", Json::array({{{"text", "never"}, {"match", "slow"}, {"prefill_ms", 600000}},
                                       {{"text", "quick" + kEos}}})}};
  TestService service(script);
  Json slow = chat();
  slow["messages"][0]["content"] = "slow";
  const auto first = service.start("POST", "/v1/chat/completions", slow.dump());
  while (service.generator().status().slots[0].phase == SlotStatus::Phase::kIdle) std::this_thread::yield();
  first->leave();
  EXPECT_EQ(whole(service, chat())["choices"][0]["message"]["content"], "quick");
}

TEST(ChatApi, CancelsByName) {
  Json script{{"answers", Json::array({{{"text", "on and on "}, {"hangs", true}}})}};
  TestService service(script);
  Json request = chat();
  request["stream"] = true;
  const auto exchange = service.start("POST", "/v1/chat/completions", request.dump());
  exchange->wait_for("and");
  const std::string name = exchange->header("X-Request-Id");
  const auto unknown = service.start("POST", "/v1/cancel/nonsense", "");
  unknown->wait();
  EXPECT_EQ(unknown->status(), 404);
  auto cancelled = service.start("POST", "/v1/cancel/" + name, "");
  cancelled->wait();
  EXPECT_EQ(cancelled->status(), 200);
  exchange->wait();
  const Streamed streamed = put_together(*exchange);
  EXPECT_EQ(streamed.details["type"], "cancelled");
  EXPECT_EQ(streamed.content.substr(0, 6), "on and");
}

TEST(ChatApi, QuickRequestsDoNotWaitBehindSlowOnes) {
  // Workers that all compile a grammar which is refused only after much work.
  TestService service(script_of("x" + kEos));
  std::vector<std::shared_ptr<TestExchange>> slow;
  for (int bomb = 0; bomb < 8; ++bomb) {
    Json request = chat();
    request["grammar"] = fmt::format("root ::= [a-z]{{0,65535}} [b-z]{{0,65535}} [c-z]{{0,{}}}", 3000 + bomb);
    slow.push_back(service.start("POST", "/v1/chat/completions", request.dump()));
  }
  EXPECT_EQ(service.get("/health")->status(), 200);
  int answered = 0;
  for (const auto& exchange : slow) answered += exchange->status() != 0;
  EXPECT_LT(answered, 8);
  for (const auto& exchange : slow) {
    exchange->wait();
    EXPECT_EQ(exchange->status(), 400);
  }
}

TEST(ChatApi, RefusesWhatDoesNotFitTheQueue) {
  Json script{{"slots", 1},
              {"queue_limit", 1},
              {"answers", Json::array({{{"text", "x"}, {"hangs", true}, {"uses", -1}}})}};
  TestService service(script);
  const auto first = service.start("POST", "/v1/chat/completions", chat().dump());
  while (service.generator().status().slots[0].phase == SlotStatus::Phase::kIdle) std::this_thread::yield();
  const auto second = service.start("POST", "/v1/chat/completions", chat().dump());
  while (service.generator().status().queued_requests == 0) std::this_thread::yield();
  const auto third = service.post("/v1/chat/completions", chat());
  EXPECT_EQ(third->status(), 429);
  EXPECT_FALSE(third->header("Retry-After").empty());
  first->leave();
  second->leave();
}

TEST(ChatApi, ContinuesOverItsOwnAnswers) {
  // Sampled with cuts that the tokenizer would not make, so that only a remembered answer continues exactly.
  Json script = script_of("The answer is fortytwo" + kEos, true);
  TestService service(script);
  Json request = chat();
  const Json first = whole(service, request);
  const int64_t prompt = first["usage"]["prompt_tokens"], answer = first["usage"]["completion_tokens"];
  request["messages"].push_back(first["choices"][0]["message"]);
  request["messages"].push_back({{"role", "user"}, {"content", "And then?"}});
  const Json second = whole(service, request);
  EXPECT_EQ(second["usage"]["prompt_tokens_details"]["cached_tokens"], prompt + answer - 1);
}

TEST(ChatApi, ContinuesOverToolCallsHoweverTheClientWritesThem) {
  Json script = script_of("Let me see." + kCalls + kEos, true);
  TestService service(script);
  for (const bool thinking : {false, true}) {
    Json request = chat(thinking);
    request["tools"] = tools();
    const Json first = whole(service, request);
    const int64_t prompt = first["usage"]["prompt_tokens"], answer = first["usage"]["completion_tokens"];
    Json message = first["choices"][0]["message"];
    message.erase("reasoning_content");  // clients drop it
    Json& function = message["tool_calls"][0]["function"];
    function["arguments"] = Json::parse(function["arguments"].get<std::string>()).dump();  // and write JSON anew
    request["messages"].push_back(message);
    request["messages"].push_back(
        {{"role", "tool"}, {"tool_call_id", message["tool_calls"][0]["id"]}, {"content", "18 C"}});
    const Json second = whole(service, request);
    EXPECT_EQ(second["usage"]["prompt_tokens_details"]["cached_tokens"], prompt + answer - 1) << thinking;
    // Another argument is another call.
    function["arguments"] = R"({"city": "Rome"})";
    request["messages"][1] = message;
    EXPECT_LT(whole(service, request)["usage"]["prompt_tokens_details"]["cached_tokens"], prompt + answer - 1);
  }
}

TEST(ChatApi, ForcesCallsByMasks) {
  Json request = chat();
  request["tools"] = tools();
  request["tool_choice"] = "required";
  {
    TestService service(script_of(kCalls + kEos));
    EXPECT_EQ(whole(service, request)["choices"][0]["finish_reason"], "tool_calls");
    request["tool_choice"] = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
    EXPECT_EQ(whole(service, request)["choices"][0]["message"]["tool_calls"][0]["function"]["name"],
              "get_weather");
    request["tool_choice"]["function"]["name"] = "nonsense";
    EXPECT_EQ(service.post("/v1/chat/completions", request)->status(), 400);
  }
  request["tool_choice"] = "required";
  TestService talks(script_of("I would rather talk." + kEos));
  EXPECT_NE(talks.post("/v1/chat/completions", request)->body().find("mask forbids"), std::string::npos);
  request["tool_choice"] = "none";
  TestService calls(script_of(kCalls + kEos));
  EXPECT_NE(calls.post("/v1/chat/completions", request)->body().find("mask forbids"), std::string::npos);
}

TEST(ChatApi, KeepsAnswersToSchemas) {
  Json request = chat(true);
  request["response_format"] = Json::parse(R"({"type": "json_schema", "json_schema": {"name": "x", "strict": true,
      "schema": {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"],
                 "additionalProperties": false}}})");
  TestService good(script_of("let me think</think>{\"age\": 42}" + kEos));
  EXPECT_EQ(whole(good, request)["choices"][0]["message"]["content"], "{\"age\": 42}");
  TestService bad(script_of("let me think</think>{\"age\": \"old\"}" + kEos));
  EXPECT_NE(bad.post("/v1/chat/completions", request)->body().find("mask forbids"), std::string::npos);
  TestService ends(script_of("let me think" + kEos));  // ending without the answer is no answer
  EXPECT_NE(ends.post("/v1/chat/completions", request)->body().find("mask forbids"), std::string::npos);
  request["response_format"]["json_schema"]["schema"]["properties"]["age"]["multipleOf"] = 7;
  const auto refused = good.post("/v1/chat/completions", request);
  EXPECT_EQ(refused->status(), 400);
  EXPECT_NE(refused->body().find("multipleOf"), std::string::npos);
  Json grammar = chat();
  grammar["grammar"] = "root ::= \"x\"";
  grammar["ignore_eos"] = true;
  EXPECT_EQ(good.post("/v1/chat/completions", grammar)->status(), 400);
  grammar["ignore_eos"] = false;
  for (const char* wrong : {"root ::= (", ""}) {
    grammar["grammar"] = wrong;
    const auto answer = good.post("/v1/chat/completions", grammar);
    EXPECT_EQ(answer->status(), 400) << wrong;
    EXPECT_EQ(answer->json()["error"]["param"], "grammar") << answer->body();
  }
  grammar["grammar"] = "root ::= \"x\"";
  grammar["tools"] = tools();
  grammar["tool_choice"] = "required";
  EXPECT_EQ(good.post("/v1/chat/completions", grammar)->status(), 400);
}

TEST(ChatApi, HoldsReasoningToItsBudget) {
  Json request = chat(true);
  request["thinking"] = {{"type", "enabled"}, {"budget_tokens", 2}};
  TestService over(script_of("one two three four</think>x" + kEos));
  EXPECT_NE(over.post("/v1/chat/completions", request)->body().find("mask forbids"), std::string::npos);
  TestService within(script_of("one</think>x" + kEos));
  EXPECT_EQ(whole(within, request)["choices"][0]["message"]["content"], "x");
}

TEST(ChatApi, BansTokens) {
  TestService service(script_of("yes no" + kEos));
  const std::vector<int32_t> ids = test_tokenizer().encode("yes no");
  Json request = chat();
  request["logit_bias"] = {{std::to_string(ids[0]), -100}};
  request["return_token_ids"] = true;
  EXPECT_NE(whole(service, request)["choices"][0]["token_ids"][0], ids[0]);
}

TEST(ChatApi, NamesWhatIsWrong) {
  TestService service(script_of("x" + kEos));
  const auto refuse = [&](const std::string& body, const std::string& param) {
    auto exchange = service.start("POST", "/v1/chat/completions", body);
    exchange->wait();
    EXPECT_EQ(exchange->status(), 400) << body << exchange->body();
    EXPECT_EQ(exchange->json()["error"]["param"], param) << exchange->body();
  };
  refuse("{", "body");
  refuse("[]", "body");
  refuse(R"({"messages": [], "temperature": 1e999})", "body");
  refuse(std::string(100000, '['), "body");
  refuse("\"\xff\xfe\"", "body");
  std::string wide = R"({"messages": [{"role": "user", "content": "x"}], "metadata": {)";
  for (int member = 0; member < 5000; ++member) wide += fmt::format("\"{}\": 0, ", member);
  refuse(wide + "\"x\": 0}}", "body");
  refuse("{}", "messages");
  refuse(R"({"messages": []})", "messages");
  refuse(R"({"messages": [{"role": "robot", "content": "x"}]})", "messages[0].role");
  const std::pair<const char*, const char*> kWrong[] = {
      {"temperature", "-1"},    {"temperature", "\"hot\""}, {"top_p", "0"},         {"top_p", "1.5"},
      {"top_k", "-2"},          {"min_p", "2"},             {"seed", "\"x\""},      {"n", "0"},
      {"n", "1000"},            {"max_tokens", "-1"},       {"max_tokens", "1.5"},  {"stop", "{}"},
      {"stop", "\"\""},         {"logit_bias", "[1]"},      {"top_logprobs", "21"}, {"stream", "1"},
      {"presence_penalty", "1000"}, {"stop_token_ids", "[99999999]"}, {"loop_guard", "\"maybe\""},
      {"tool_choice", "\"perhaps\""}, {"timeout", "-3"}, {"min_tokens", "99999999"}};
  for (const auto& [member, value] : kWrong) {
    std::string body = R"({"messages": [{"role": "user", "content": "x"}], ")";
    body.append(member).append("\": ").append(value).append("}");
    auto exchange = service.start("POST", "/v1/chat/completions", body);
    exchange->wait();
    EXPECT_EQ(exchange->status(), 400) << body;
    EXPECT_TRUE(exchange->json()["error"]["param"].get<std::string>().starts_with(member)) << exchange->body();
  }
  refuse(
      R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}]})",
      "messages");
}

TEST(ChatApi, AnswersEveryRequest) {
  ServiceOptions options;
  options.keep_alive_interval = std::chrono::milliseconds(40);  // the thread behind it runs often
  TestService service(script_of("x" + kEos), options);
  for (int request = 0; request < 3000; ++request) EXPECT_EQ(service.get("/health")->status(), 200);
}

TEST(ChatApi, WantsAKeyIfItHasSome) {
  ServiceOptions options;
  options.api_keys = {"sesame", "other"};
  TestService service(script_of("x" + kEos), options);
  EXPECT_EQ(service.post("/v1/chat/completions", chat())->status(), 401);
  const auto with = [&](HttpHeaders headers) {
    auto exchange = service.start("POST", "/v1/chat/completions", chat().dump(), std::move(headers));
    exchange->wait();
    return exchange->status();
  };
  EXPECT_EQ(with({{"authorization", "Bearer sesame"}}), 200);
  EXPECT_EQ(with({{"x-api-key", "other"}}), 200);
  EXPECT_EQ(with({{"authorization", "Bearer sesam"}}), 401);
  EXPECT_EQ(with({{"authorization", "Basic sesame"}}), 401);
  EXPECT_EQ(service.get("/health")->status(), 200);
  EXPECT_EQ(service.get("/slots")->status(), 401);
}

TEST(ChatApi, AnswersUnknownPathsAndMethods) {
  TestService service(script_of("x" + kEos));
  for (const char* path : {"/nothing", "/v1", "/v1/chat", "/v1/chat/completions/", "/etc/passwd", "/assets/../x"})
    EXPECT_EQ(service.get(path)->status(), 404) << path;
  const auto wrong = service.get("/v1/chat/completions");
  EXPECT_EQ(wrong->status(), 405);
  EXPECT_EQ(wrong->header("Allow"), "POST");
  EXPECT_EQ(service.get("/v1/models")->json()["data"][0]["id"], "mini");
  EXPECT_EQ(service.get("/v1/models/mini")->json()["id"], "mini");
  EXPECT_EQ(service.get("/v1/models/gpt")->status(), 404);
  EXPECT_EQ(service.get("/slots")->json()["slots"].size(), 4u);
  EXPECT_EQ(service.get("/props")->json()["n_ctx"], 4096);
}

}  // namespace
}  // namespace fathom
