// The messages API against a scripted model: a state machine checks the order of every stream's events.
#include <gtest/gtest.h>

#include <set>

#include "server/messages_stream.h"
#include "server/test_exchange.h"

namespace fathom {
namespace {

const std::string kPath = "/v1/messages";

Json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
Json request(bool thinking = false) {
  Json body{{"model", "mini"}, {"max_tokens", 1000}, {"messages", Json::array({user("hi")})}, {"seed", 1}};
  if (thinking) body["thinking"] = {{"type", "adaptive"}};
  return body;
}
Json with_tools(Json body) {
  body["tools"] = Json::parse(R"([{"name": "get_weather", "description": "of a city",
      "input_schema": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}])");
  return body;
}
Json answers(const std::string& text, Json more = Json::object()) {
  Json answer{{"text", text}, {"uses", -1}};
  answer.update(more);
  return {{"answers", Json::array({answer})}};
}

/// A stream put together as clients do, and checked for what every stream must keep to.
struct Message {
  Json start, content = Json::array(), delta, usage, error;
  std::vector<int32_t> ids;
  int pings = 0, text_deltas = 0, input_deltas = 0;
  bool stopped = false;
};

void take_delta(const Json& event, Message& message) {
  Json& block = message.content.back();
  const Json& delta = event["delta"];
  const auto append = [&](const char* block_type, const char* member) {
    EXPECT_EQ(block["type"], block_type) << "a delta of another type than its block";
    block[member] = block.value(member, "") + delta[member].get<std::string>();
  };
  const std::string type = delta["type"];
  if (type == "text_delta") {
    append("text", "text");
    ++message.text_deltas;
  } else if (type == "input_json_delta") {
    append("tool_use", "partial_json");
    ++message.input_deltas;
  } else if (type == "thinking_delta" || type == "signature_delta") {
    append("thinking", type == "thinking_delta" ? "thinking" : "signature");
  } else {
    ADD_FAILURE() << event;
  }
  if (block["type"] == "thinking" && block["signature"] != "") {
    EXPECT_EQ(delta["type"], "signature_delta");
  }
  if (event.contains("token_ids"))
    for (const Json& id : event["token_ids"]) message.ids.push_back(id);
}

Message read_stream(const TestExchange& exchange) {
  Message message;
  bool open = false, has_delta = false;
  for (const TestEvent& item : read_events(exchange.body())) {
    const Json event = item.json();
    EXPECT_EQ(event["type"], item.name);
    EXPECT_FALSE(message.stopped || !message.error.is_null()) << "after the end: " << event;
    if (item.name == "ping") {
      ++message.pings;
      continue;
    }
    if (item.name == "error") {
      message.error = event["error"];
    EXPECT_EQ(event["request_id"], message.start["id"]);
      continue;
    }
    if (item.name == "message_start") {
      EXPECT_TRUE(message.start.is_null());
      message.start = event["message"];
      EXPECT_TRUE(message.start["content"].empty());
      continue;
    }
    EXPECT_FALSE(message.start.is_null()) << "before message_start: " << event;
    if (event.contains("index")) {
      EXPECT_EQ(event["index"], message.content.size() - (open ? 1 : 0)) << event;
    }
    if (item.name == "content_block_start") {
      EXPECT_FALSE(open || has_delta) << event;
      open = true;
      message.content.push_back(event["content_block"]);
    } else if (item.name == "content_block_delta") {
      EXPECT_TRUE(open) << event;
      take_delta(event, message);
    } else if (item.name == "content_block_stop") {
      EXPECT_TRUE(open) << event;
      open = false;
      if (message.content.back()["type"] == "thinking") {
        EXPECT_NE(message.content.back()["signature"], "");
      }
    } else if (item.name == "message_delta") {
      EXPECT_FALSE(open || has_delta) << event;
      has_delta = true;
      message.delta = event["delta"];
      message.usage = event["usage"];
      if (event.contains("token_ids"))
        for (const Json& id : event["token_ids"]) message.ids.push_back(id);
    } else if (item.name == "message_stop") {
      EXPECT_TRUE(has_delta);
      message.stopped = true;
    } else {
      ADD_FAILURE() << item.name;
    }
  }
  return message;
}

Message stream(TestService& service, Json body) {
  body["stream"] = true;
  const auto exchange = service.post(kPath, body);
  EXPECT_EQ(exchange->status(), 200) << exchange->body();
  EXPECT_TRUE(exchange->header("Content-Type").starts_with("text/event-stream"));
  return read_stream(*exchange);
}

TEST(MessagesApi, GivesAWholeMessage) {
  TestService service(answers("Hello, you." + kEos));
  const auto exchange = service.post(kPath, request());
  ASSERT_EQ(exchange->status(), 200) << exchange->body();
  const Json message = exchange->json();
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["model"], "mini");
  EXPECT_TRUE(message["id"].get<std::string>().starts_with("msg_"));
  EXPECT_EQ(message["content"], Json::array({{{"type", "text"}, {"text", "Hello, you."}}}));
  EXPECT_EQ(message["stop_reason"], "end_turn");
  EXPECT_TRUE(message["stop_sequence"].is_null());
  EXPECT_EQ(message["finish_details"]["type"], "stop");
  EXPECT_EQ(message["usage"]["cache_read_input_tokens"], 0);
  EXPECT_GT(message["usage"]["input_tokens"], 3);
  EXPECT_GT(message["usage"]["output_tokens"], 2);
  EXPECT_EQ(message["timings"]["decode_tokens"], message["usage"]["output_tokens"]);
  EXPECT_EQ(exchange->header("X-Fathom-Finish"), "stop");
  EXPECT_EQ(Json(exchange->header("request-id")), message["id"]);
}

TEST(MessagesApi, StreamsThinkingTextAndCallsAsBlocks) {
  TestService service(answers("I think.</think>Let me see." + kOpenCalls + kWeather + kWeather + kCloseCalls +
      kEos));
  const Json body = with_tools(request(true));
  const Message streamed = stream(service, body);
  ASSERT_EQ(streamed.content.size(), 4U) << streamed.content;
  EXPECT_EQ(streamed.content[0]["type"], "thinking");
  EXPECT_EQ(streamed.content[0]["thinking"], "I think.");
  EXPECT_EQ(streamed.content[1], (Json{{"type", "text"}, {"text", "Let me see."}}));
  const Json arguments{{"city", "Paris \"<&>\"\n2"}, {"days", 3}};
  for (const int call : {2, 3}) {
    EXPECT_EQ(streamed.content[call]["name"], "get_weather");
    EXPECT_TRUE(streamed.content[call]["id"].get<std::string>().starts_with("toolu_"));
    EXPECT_EQ(streamed.content[call]["input"], Json::object());
    EXPECT_EQ(Json::parse(streamed.content[call]["partial_json"].get<std::string>()), arguments);
  }
  EXPECT_NE(streamed.content[2]["id"], streamed.content[3]["id"]);
  EXPECT_GT(streamed.input_deltas, 6);
  EXPECT_EQ(streamed.delta["stop_reason"], "tool_use");
  EXPECT_EQ(streamed.delta["finish_details"]["type"], "tool_calls");
  EXPECT_GE(streamed.pings, 1);
  EXPECT_TRUE(streamed.stopped);

  const Json whole = service.post(kPath, body)->json();
  ASSERT_EQ(whole["content"].size(), 4U);
  EXPECT_EQ(whole["content"][0], streamed.content[0]);  // signature too
  EXPECT_EQ(whole["content"][3]["input"], arguments);
  EXPECT_EQ(whole["stop_reason"], "tool_use");
}

TEST(MessagesApi, ClosesThinkingWhenACallFollowsDirectly) {
  TestService service(answers("Hm." + kOpenCalls + kWeather + kCloseCalls + kEos));
  const Message streamed = stream(service, with_tools(request(true)));
  ASSERT_EQ(streamed.content.size(), 2U);
  EXPECT_EQ(streamed.content[0]["thinking"], "Hm.");
  EXPECT_EQ(streamed.content[1]["type"], "tool_use");
  EXPECT_EQ(streamed.delta["stop_reason"], "tool_use");
}

TEST(MessagesApi, ThinksOnlyWhenAsked) {
  TestService service(answers("Hi." + kEos));
  const Json plain = service.post(kPath, request())->json();
  EXPECT_EQ(plain["content"][0]["type"], "text");
  Json off = request();
  off["thinking"] = {{"type", "disabled"}};
  EXPECT_EQ(service.post(kPath, off)->json()["content"], plain["content"]);
  // Asked to think, the same words are thoughts, and the message says that they never came to an end.
  const Json thoughts = service.post(kPath, request(true))->json();
  EXPECT_EQ(thoughts["content"][0]["thinking"], "Hi.");
  EXPECT_EQ(thoughts["finish_details"]["reasoning_unclosed"], true);
  EXPECT_GT(thoughts["usage"]["output_tokens_details"]["thinking_tokens"], 0);
}

TEST(MessagesApi, KeepsThoughtsToItselfWhenDisplayIsOmitted) {
  TestService service(answers("Secret.</think>Open." + kEos));
  Json body = request();
  body["thinking"] = {{"type", "adaptive"}, {"display", "omitted"}};
  const Message streamed = stream(service, body);
  ASSERT_EQ(streamed.content.size(), 2U);
  EXPECT_EQ(streamed.content[0]["thinking"], "");
  EXPECT_NE(streamed.content[0]["signature"], "");
  EXPECT_EQ(streamed.content[1]["text"], "Open.");
  EXPECT_EQ(service.post(kPath, body)->body().find("Secret"), std::string::npos);
}

TEST(MessagesApi, NamesTheStopSequence) {
  TestService service(answers("one two STOP three" + kEos));
  Json body = request();
  body["stop_sequences"] = Json::array({"never", " STOP"});
  const Message streamed = stream(service, body);
  EXPECT_EQ(streamed.content[0]["text"], "one two");
  EXPECT_EQ(streamed.delta["stop_reason"], "stop_sequence");
  EXPECT_EQ(streamed.delta["stop_sequence"], " STOP");
  const Json whole = service.post(kPath, body)->json();
  EXPECT_EQ(whole["stop_reason"], "stop_sequence");
  EXPECT_EQ(whole["stop_sequence"], " STOP");
}

TEST(MessagesApi, NeverPresentsACutCallAsWhole) {
  const std::string text = kOpenCalls + kWeather + kWeather + kCloseCalls + kEos;
  TestService service(answers(text));
  const int64_t all = service.post(kPath, with_tools(request()))->json()["usage"]["output_tokens"];
  for (int64_t limit = 1; limit < all; limit += 7) {
    Json body = with_tools(request());
    body["max_tokens"] = limit;
    const Json whole = service.post(kPath, body)->json();
    EXPECT_EQ(whole["stop_reason"], "max_tokens") << limit;
    EXPECT_EQ(whole["finish_details"]["type"], "max_tokens");
    // The beginning of the markup may have been text for all that could be known.
    size_t whole_calls = 0;
    for (const Json& block : whole["content"]) {
      if (block["type"] == "text") continue;
      EXPECT_EQ(block["input"]["days"], 3) << limit;
      ++whole_calls;
    }
    const Message streamed = stream(service, body);
    EXPECT_EQ(streamed.delta["stop_reason"], "max_tokens") << limit;
    size_t valid = 0;
    for (const Json& block : streamed.content)
      valid += Json::accept(block.value("partial_json", "")) ? 1 : 0;
    EXPECT_EQ(valid, whole_calls) << limit;
  }
}

TEST(MessagesApi, GivesADroppedCallBackAsText) {
  const std::string text = kOpenCalls + "<｜DSML｜ invoke name=\"get_weather\">\nnonsense" + kEos;
  TestService service(answers(text));
  const Message streamed = stream(service, with_tools(request()));
  EXPECT_EQ(streamed.delta["stop_reason"], "end_turn");
  const Json whole = service.post(kPath, with_tools(request()))->json();
  ASSERT_EQ(whole["content"].size(), 1U) << whole;
  EXPECT_EQ(whole["content"][0]["type"], "text");
  EXPECT_EQ(whole["stop_reason"], "end_turn");
  EXPECT_FALSE(whole["finish_details"]["diagnostics"].empty());
}

TEST(MessagesApi, TellsOtherEndsApart) {
  Json looping = answers("a b ", {{"repeat", 400}});
  looping["context_tokens"] = 3000;
  TestService service(looping);
  Json body = request();
  body["max_tokens"] = 100000;
  const auto ends = [&](Json more) {
    more.update(body);
    const Message streamed = stream(service, more);
    return std::pair(streamed.delta["stop_reason"], streamed.delta["finish_details"]["type"]);
  };
  EXPECT_EQ(ends({{"loop_guard", "stop"}}), std::pair(Json("max_tokens"), Json("loop")));

  ServiceOptions options;
  options.loop_finish_reason = LoopFinishReason::kContentFilter;
  TestService strict(looping, options);
  body["loop_guard"] = "stop";
  const Message cut = stream(strict, body);
  EXPECT_EQ(cut.delta["stop_reason"], "refusal");
  EXPECT_GT(cut.delta["finish_details"]["repeats"], 1);

  Json small = answers("a b c d e f g h i j k l m n o p", {{"hangs", true}});
  small["context_tokens"] = 20;
  TestService tiny(small);
  body["loop_guard"] = "off";
  EXPECT_EQ(stream(tiny, body).delta["stop_reason"], "model_context_window_exceeded");

  TestService slow(answers("a b", {{"hangs", true}}));
  body["timeout"] = 0.05;
  const Message late = stream(slow, body);
  EXPECT_EQ(late.delta["stop_reason"], "max_tokens");
  EXPECT_EQ(late.delta["finish_details"]["type"], "time_limit");
}

TEST(MessagesApi, EndsABrokenStreamWithAnErrorEvent) {
  TestService service(answers("one two three four", {{"fail_after", 2}, {"fail_message", "disk on fire"}}));
  const Message streamed = stream(service, request());
  EXPECT_EQ(streamed.error["type"], "api_error");
  EXPECT_EQ(streamed.error["message"], "disk on fire");
  EXPECT_FALSE(streamed.stopped);
  const auto whole = service.post(kPath, request());
  EXPECT_EQ(whole->status(), 500);
  EXPECT_EQ(whole->json()["type"], "error");
  EXPECT_EQ(whole->json()["error"]["type"], "api_error");
  EXPECT_EQ(whole->json()["request_id"], whole->header("request-id"));
  EXPECT_EQ(whole->header("X-Request-Id"), whole->header("request-id")) << "as in the log";
}

TEST(MessagesApi, BeginsBeforeThePromptIsRead) {
  ServiceOptions options;
  options.keep_alive_interval = std::chrono::milliseconds(10);
  TestService service(answers("Hi" + kEos, {{"prefill_ms", 400}}), options);
  Json body = request();
  body["stream"] = true;
  const auto exchange = service.start("POST", kPath, body.dump());
  exchange->wait_for("message_start");
  exchange->wait();
  const Message message = read_stream(*exchange);
  EXPECT_TRUE(message.stopped);
  EXPECT_GE(message.pings, 2) << "no sign of life while the prompt was read";
  EXPECT_LT(exchange->body().rfind("event: ping"), exchange->body().find("content_block_start"));
  EXPECT_GT(message.start["usage"]["input_tokens"], 3);
}

TEST(MessagesApi, CountsWhatACacheHad) {
  TestService service(answers("Hi" + kEos));
  const Json cold = service.post(kPath, request())->json()["usage"];
  const Message again = stream(service, request());
  EXPECT_EQ(again.usage["input_tokens"], 1);
  EXPECT_EQ(again.usage["cache_read_input_tokens"], cold["input_tokens"].get<int64_t>() - 1);
  EXPECT_EQ(again.usage["cache_creation_input_tokens"], 0);
  EXPECT_EQ(again.start["usage"]["input_tokens"], cold["input_tokens"]);
}

TEST(MessagesApi, ContinuesBehindItsOwnAnswerInEveryTurn) {
  TestService service(answers("Sure.</think>Calling." + kOpenCalls + kWeather + kCloseCalls + kEos));
  for (const bool drops_thinking : {false, true}) {
    Json body = with_tools(request(true));
    body["system"] = drops_thinking ? "I forget." : "I remember.";
    body["return_token_ids"] = true;
    size_t held = 0;
    for (int turn = 0; turn < 5; ++turn) {
      const Json message = service.post(kPath, body)->json();
      if (turn > 0) {
        EXPECT_EQ(message["usage"]["cache_read_input_tokens"], held) << turn;
      }
      held = message["prompt_token_ids"].size() + message["token_ids"].size() - 1;
      Json content = message["content"];
      if (drops_thinking) content.erase(0);
      body["messages"].push_back({{"role", "assistant"}, {"content", content}});
      const Json result{{"type", "tool_result"}, {"tool_use_id", content.back()["id"]}, {"content", "sunny"}};
      body["messages"].push_back({{"role", "user"}, {"content", Json::array({result})}});
    }
  }
}

TEST(MessagesApi, DropsTheBillingLine) {
  const auto with_line = [](const std::string& nonce) {
    Json body = request();
    body["system"] = Json::array(
        {{{"type", "text"}, {"text", "x-anthropic-billing-header: cc_version=2.1; cch=" + nonce + ";"}},
         {{"type", "text"}, {"text", "Be brief."}, {"cache_control", {{"type", "ephemeral"}}}}});
    body["return_token_ids"] = true;
    return body;
  };
  TestService service(answers("Hi" + kEos));
  const Json first = service.post(kPath, with_line("11111"))->json();
  const Json second = service.post(kPath, with_line("22222"))->json();
  EXPECT_EQ(first["prompt_token_ids"], second["prompt_token_ids"]);
  EXPECT_EQ(second["usage"]["input_tokens"], 1);

  ServiceOptions options;
  options.drops_billing_header = false;
  TestService verbatim(answers("Hi" + kEos), options);
  EXPECT_NE(verbatim.post(kPath, with_line("11111"))->json()["prompt_token_ids"],
            verbatim.post(kPath, with_line("22222"))->json()["prompt_token_ids"]);
}

TEST(MessagesApi, TakesAndGivesTokenIds) {
  TestService service(answers("So.</think>Hello there, you." + kEos));
  Json body = request(true);
  body["return_token_ids"] = true;
  body["logprobs"] = true;
  const Json whole = service.post(kPath, body)->json();
  const Message streamed = stream(service, body);
  EXPECT_EQ(Json(streamed.ids), whole["token_ids"]);
  EXPECT_EQ(streamed.start["prompt_token_ids"], whole["prompt_token_ids"]);
  EXPECT_EQ(whole["token_ids"].size(), whole["usage"]["output_tokens"]);
  EXPECT_EQ(whole["logprobs"][0]["logprob"], -0.5);
  Json ids = request(true);
  ids.erase("messages");
  ids["prompt_token_ids"] = whole["prompt_token_ids"];
  EXPECT_EQ(service.post(kPath, ids)->json()["content"], whole["content"]);
}

TEST(MessagesApi, CountsTokensWithoutGenerating) {
  TestService service(answers("Hi" + kEos));
  Json body = with_tools(request(true));
  const int64_t evaluated = service.post(kPath, body)->json()["usage"]["input_tokens"];
  body.erase("max_tokens");
  const auto exchange = service.post(kPath + "/count_tokens", body);
  EXPECT_EQ(exchange->status(), 200);
  EXPECT_EQ(exchange->json(), (Json{{"input_tokens", evaluated}}));
  EXPECT_EQ(service.post(kPath + "/count_tokens", Json::object())->status(), 400);
}

TEST(MessagesApi, AnswersTheGenerationsOfAClientThatLeftWithNothing) {
  TestService service(answers("a b c", {{"hangs", true}}));
  Json body = request();
  body["stream"] = true;
  const auto exchange = service.start("POST", kPath, body.dump());
  exchange->wait_for("text_delta");
  exchange->leave();
  exchange->wait();
  const Message message = read_stream(*exchange);
  EXPECT_EQ(message.delta["finish_details"]["type"], "cancelled");
  EXPECT_EQ(message.delta["stop_reason"], "max_tokens");
}

TEST(MessagesApi, RefusesInItsOwnShape) {
  TestService service(answers("Hi"));
  const auto exchange = service.post(kPath, {{"max_tokens", 5}});
  EXPECT_EQ(exchange->status(), 400);
  EXPECT_EQ(exchange->json()["type"], "error");
  EXPECT_EQ(exchange->json()["error"]["type"], "invalid_request_error");
  Json long_prompt = request();
  std::string text;
  for (int word = 0; word < 5000; ++word) text += "word ";
  long_prompt["messages"][0]["content"] = text;
  long_prompt["stream"] = true;
  EXPECT_EQ(service.post(kPath, long_prompt)->status(), 400);
}

// Clients print it: "(request id: ...)".
TEST(MessagesApi, NamesTheRequestInEveryError) {
  ServiceOptions options;
  options.api_keys = {"secret"};
  TestService service(answers("Hi" + kEos), options);
  const HttpHeaders key{{"x-api-key", "secret"}};
  Json full = request();
  full["prompt_token_ids"] = std::vector<int>(100000, 1);
  const std::pair<int, std::shared_ptr<TestExchange>> kErrors[] = {
      {400, service.start("POST", kPath, "{}", key)},
      {400, service.start("POST", kPath, "no JSON", key)},
      {400, service.start("POST", kPath, full.dump(), key)},
      {400, service.start("POST", kPath + "/count_tokens", "{}", key)},
      {401, service.start("POST", kPath, "{}")},
      {404, service.start("POST", kPath + "/nothing", "{}", key)},
      {405, service.start("GET", kPath, "", key)},
  };
  std::set<std::string> ids;
  for (const auto& [status, exchange] : kErrors) {
    exchange->wait();
    EXPECT_EQ(exchange->status(), status) << exchange->body();
    const std::string id = exchange->header("request-id");
    EXPECT_TRUE(id.starts_with("req_")) << id;
    EXPECT_EQ(exchange->json()["request_id"], id);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), std::size(kErrors));
  const HttpResponse of_http = Service::error_body(413, "too large", kPath);
  EXPECT_TRUE(Json::parse(of_http.body)["request_id"].get<std::string>().starts_with("req_"));
  EXPECT_EQ(Json::parse(of_http.body)["error"]["type"], "request_too_large");
  EXPECT_TRUE(Json::parse(Service::error_body(413, "too large", "/v1/completions").body)["request_id"].is_null());

  const auto counted = service.start("POST", kPath + "/count_tokens", request().dump(), key);
  counted->wait();
  EXPECT_TRUE(counted->header("request-id").starts_with("msg_"));
}

TEST(MessagesApi, NamesWhatItLeavesOut) {
  TestService service(answers("Hi" + kEos));
  Json body = with_tools(request());
  body["tools"].push_back({{"type", "web_search_20250305"}, {"name", "web_search"}});
  body["context_management"] = {{"edits", Json::array()}};
  body["metadata"] = {{"user_id", "x"}};
  const auto exchange = service.post(kPath, body);
  EXPECT_EQ(exchange->status(), 200);
  EXPECT_EQ(exchange->header("X-Fathom-Ignored"), "tools[1] of type \"web_search_20250305\"");
}

}  // namespace
}  // namespace fathom
