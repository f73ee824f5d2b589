// The responses API against a scripted model: a state machine checks the order of every stream's events.
#include <gtest/gtest.h>

#include "server/responses_store.h"
#include "server/test_exchange.h"

namespace fathom {
namespace {

const std::string kPath = "/v1/responses";
const Json kArguments{{"city", "Paris \"<&>\"\n2"}, {"days", 3}};

Json request(bool thinking = false) {
  return {{"model", "mini"}, {"input", "hi"}, {"seed", 1}, {"reasoning",
      {{"effort", thinking ? "high" : "none"}}}};
}
Json with_tools(Json body) {
  body["tools"] = Json::parse(R"([{"type": "function", "name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]},
          "strict": false}])");
  return body;
}
Json answers(const std::string& text, Json more = Json::object()) {
  Json answer{{"text", text}, {"uses", -1}};
  answer.update(more);
  return {{"answers", Json::array({answer})}};
}

/// Puts a stream together as the openai package does, and checks what every stream must keep to.
class StreamReader {
 public:
  explicit StreamReader(const TestExchange& exchange) {
    for (const TestEvent& item : read_events(exchange.body())) {
      const Json event = item.json();
      EXPECT_EQ(event["type"], item.name);
      EXPECT_EQ(event["sequence_number"], sequence_++);
      EXPECT_TRUE(last_.is_null()) << "after the end: " << event;
      take(item.name, event);
    }
    EXPECT_FALSE(last_.is_null()) << "no end";
    EXPECT_FALSE(open_);
    if (last_.is_null()) return;
    EXPECT_EQ(last_["output"], output_);
    EXPECT_EQ(last_["id"], id_);
  }

  const Json& last() const { return last_; }
  const Json& output() const { return output_; }
  int progress() const { return progress_; }
  const std::vector<int32_t>& ids() const { return ids_; }
  int count(const std::string& type) const { return counts_.contains(type) ? counts_.at(type) : 0; }

 private:
  void take(const std::string& type, const Json& event) {
    ++counts_[type];
    if (event.contains("token_ids"))
      for (const Json& id : event["token_ids"]) ids_.push_back(id);
    if (type == "response.created") {
      EXPECT_EQ(event["sequence_number"], 0);
      id_ = event["response"]["id"];
      EXPECT_EQ(event["response"]["status"], "in_progress");
    } else if (type == "response.in_progress") {
      ++progress_;
      EXPECT_EQ(event["response"]["output"], output_) << "a client would lose what it has";
    } else if (type == "response.completed" || type == "response.incomplete" || type == "response.failed") {
      last_ = event["response"];
      EXPECT_EQ("response." + last_["status"].get<std::string>(), type);
    } else if (type == "response.output_item.added") {
      EXPECT_FALSE(open_) << event;
      open_ = true;
      EXPECT_EQ(event["output_index"], output_.size());
      EXPECT_EQ(event["item"]["status"], "in_progress");
      output_.push_back(event["item"]);
    } else {
      ASSERT_TRUE(open_) << event;
      ASSERT_EQ(event["output_index"], output_.size() - 1);
      take_inside(type, event, output_.back());
    }
  }

  void take_inside(const std::string& type, const Json& event, Json& item) {
    if (type == "response.output_item.done") {
      open_ = false;
      EXPECT_NE(event["item"]["status"], "in_progress");
      Json expected = event["item"];
      expected["status"] = "in_progress";
      // What is known only when it is whole.
      if (item["type"] == "reasoning" && expected.contains("encrypted_content"))
        item["encrypted_content"] = expected["encrypted_content"];
      EXPECT_EQ(item, expected) << "the end differs from its pieces";
      item = event["item"];
      return;
    }
    EXPECT_EQ(event["item_id"], item["id"]);
    if (type == "response.content_part.added") {
      EXPECT_EQ(event["content_index"], item["content"].size());
      item["content"].push_back(event["part"]);
    } else if (type == "response.content_part.done") {
      EXPECT_EQ(item["content"][0], event["part"]);
    } else if (type == "response.output_text.delta" || type == "response.reasoning_text.delta") {
      ASSERT_EQ(item["content"].size(), 1U);
      Json& part = item["content"][0];
      EXPECT_EQ(part["type"], type == "response.output_text.delta" ? "output_text" : "reasoning_text");
      part["text"] = part["text"].get<std::string>() + event["delta"].get<std::string>();
      if (event.contains("logprobs"))
        for (const Json& logprob : event["logprobs"]) part["logprobs"].push_back(logprob);
    } else if (type == "response.output_text.done" || type == "response.reasoning_text.done") {
      EXPECT_EQ(item["content"][0]["text"], event["text"]);
    } else if (type == "response.function_call_arguments.delta") {
      EXPECT_EQ(item["type"], "function_call");
      item["arguments"] = item["arguments"].get<std::string>() + event["delta"].get<std::string>();
    } else if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(item["arguments"], event["arguments"]);
      EXPECT_EQ(item["name"], event["name"]);
    } else if (type == "response.custom_tool_call_input.delta") {
      EXPECT_EQ(item["type"], "custom_tool_call");
      item["input"] = item["input"].get<std::string>() + event["delta"].get<std::string>();
    } else if (type == "response.custom_tool_call_input.done") {
      EXPECT_EQ(item["input"], event["input"]);
    } else {
      ADD_FAILURE() << type;
    }
  }

  int sequence_ = 0, progress_ = 0;
  bool open_ = false;
  Json id_, last_, output_ = Json::array();
  std::vector<int32_t> ids_;
  std::map<std::string, int> counts_;
};

StreamReader stream(TestService& service, Json body) {
  body["stream"] = true;
  const auto exchange = service.post(kPath, body);
  EXPECT_EQ(exchange->status(), 200) << exchange->body();
  return StreamReader(*exchange);
}

TEST(ResponsesApi, GivesAWholeResponse) {
  TestService service(answers("Hello, you." + kEos));
  Json body = request();
  body["metadata"] = {{"a", "b"}};
  const auto exchange = service.post(kPath, body);
  ASSERT_EQ(exchange->status(), 200) << exchange->body();
  const Json response = exchange->json();
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["status"], "completed");
  EXPECT_TRUE(response["id"].get<std::string>().starts_with("resp_"));
  ASSERT_EQ(response["output"].size(), 1U);
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "Hello, you.");
  EXPECT_EQ(response["output"][0]["status"], "completed");
  EXPECT_EQ(response["usage"]["input_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(response["usage"]["total_tokens"],
            response["usage"]["input_tokens"].get<int>() + response["usage"]["output_tokens"].get<int>());
  EXPECT_EQ(response["metadata"]["a"], "b");
  EXPECT_EQ(response["finish_details"]["type"], "stop");
  EXPECT_TRUE(response["incomplete_details"].is_null() && response["error"].is_null());
  EXPECT_EQ(exchange->header("X-Fathom-Finish"), "stop");
}

TEST(ResponsesApi, StreamsReasoningTextAndCallsAsItems) {
  TestService service(answers("I think.</think>Let me see." + kOpenCalls + kWeather + kWeather + kCloseCalls +
      kEos));
  const StreamReader streamed = stream(service, with_tools(request(true)));
  const Json& output = streamed.output();
  ASSERT_EQ(output.size(), 4U) << output;
  EXPECT_EQ(output[0]["type"], "reasoning");
  EXPECT_EQ(output[0]["content"][0]["text"], "I think.");
  EXPECT_EQ(output[1]["content"][0]["text"], "Let me see.");
  for (const int call : {2, 3}) {
    EXPECT_EQ(output[call]["name"], "get_weather");
    EXPECT_EQ(Json::parse(output[call]["arguments"].get<std::string>()), kArguments);
    EXPECT_EQ(output[call]["status"], "completed");
  }
  EXPECT_NE(output[2]["call_id"], output[3]["call_id"]);
  EXPECT_EQ(streamed.count("response.function_call_arguments.done"), 2);
  EXPECT_GT(streamed.count("response.function_call_arguments.delta"), 6);
  EXPECT_EQ(streamed.last()["status"], "completed");
  EXPECT_GT(streamed.last()["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
  // Whole and streamed say the same, names apart.
  Json whole = service.post(kPath, with_tools(request(true)))->json()["output"];
  ASSERT_EQ(whole.size(), 4U);
  EXPECT_EQ(whole[3]["arguments"], output[3]["arguments"]);
  EXPECT_EQ(whole[0]["content"], output[0]["content"]);
}

TEST(ResponsesApi, NeverPresentsACutCallAsWhole) {
  TestService service(answers(kOpenCalls + kWeather + kWeather + kCloseCalls + kEos));
  const int64_t all = service.post(kPath, with_tools(request()))->json()["usage"]["output_tokens"];
  for (int64_t limit = 1; limit < all; limit += 7) {
    Json body = with_tools(request());
    body["max_output_tokens"] = limit;
    const StreamReader streamed = stream(service, body);
    EXPECT_EQ(streamed.last()["status"], "incomplete") << limit;
    EXPECT_EQ(streamed.last()["incomplete_details"]["reason"], "max_output_tokens");
    EXPECT_EQ(streamed.last()["finish_details"]["type"], "max_tokens");
    int whole_calls = 0;
    for (const Json& item : streamed.output()) {
      // The beginning of the markup may have been text for all that could be known.
      if (item["type"] == "message") continue;
      const bool is_json = Json::accept(item["arguments"].get<std::string>());
      EXPECT_EQ(item["status"], is_json ? "completed" : "incomplete") << item;
      whole_calls += is_json ? 1 : 0;
    }
    EXPECT_EQ(streamed.count("response.function_call_arguments.done"), whole_calls);
  }
}

TEST(ResponsesApi, MarksADroppedCall) {
  TestService service(answers(kOpenCalls + "<｜DSML｜ invoke name=\"get_weather\">\nnonsense" + kEos));
  const StreamReader streamed = stream(service, with_tools(request()));
  for (const Json& item : streamed.output())
    if (item["type"] == "function_call") {
      EXPECT_EQ(item["status"], "incomplete");
    }
  EXPECT_EQ(streamed.output().back()["type"], "message");
  EXPECT_EQ(streamed.count("response.function_call_arguments.done"), 0);
}

TEST(ResponsesApi, SaysWhatCutAnAnswer) {
  Json looping = answers("a b ", {{"repeat", 400}});
  looping["context_tokens"] = 3000;
  Json body = request();
  body["max_output_tokens"] = 100000;
  body["loop_guard"] = "stop";
  TestService service(looping);
  const StreamReader cut = stream(service, body);
  EXPECT_EQ(cut.last()["status"], "incomplete");
  EXPECT_EQ(cut.last()["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(cut.last()["finish_details"]["type"], "loop");
  EXPECT_EQ(cut.output().back()["status"], "incomplete");
  // Whatever chat's finish_reason is made to say of a loop, here it is never a success.
  ServiceOptions options;
  options.loop_finish_reason = LoopFinishReason::kStop;
  TestService strict(looping, options);
  EXPECT_EQ(strict.post(kPath, body)->json()["status"], "incomplete");
  EXPECT_EQ(strict.post(kPath, body)->json()["incomplete_details"]["reason"], "content_filter");

  Json small = answers("a b c d e f g h i j k l m n o p", {{"hangs", true}});
  small["context_tokens"] = 20;
  TestService tiny(small);
  body["loop_guard"] = "off";
  const Json full = stream(tiny, body).last();
  EXPECT_EQ(full["status"], "incomplete");
  EXPECT_EQ(full["finish_details"]["type"], "context_full");

  TestService slow(answers("a b", {{"hangs", true}}));
  body["timeout"] = 0.05;
  EXPECT_EQ(stream(slow, body).last()["finish_details"]["type"], "time_limit");
}

TEST(ResponsesApi, FailsWithAnEvent) {
  TestService service(answers("one two three", {{"fail_after", 2}, {"fail_message", "disk on fire"}}));
  const StreamReader streamed = stream(service, request());
  EXPECT_EQ(streamed.last()["status"], "failed");
  EXPECT_EQ(streamed.last()["error"], (Json{{"code", "server_error"}, {"message", "disk on fire"}}));
  EXPECT_EQ(service.post(kPath, request())->status(), 500);
}

TEST(ResponsesApi, ShowsProgressInSilence) {
  ServiceOptions options;
  options.keep_alive_interval = std::chrono::milliseconds(10);
  TestService service(answers("Hi there" + kEos, {{"prefill_ms", 300}, {"token_ms", 60}}), options);
  const StreamReader streamed = stream(service, request());
  EXPECT_GE(streamed.progress(), 3);
  EXPECT_EQ(streamed.last()["status"], "completed");
}

TEST(ResponsesApi, ContinuesExactly) {
  TestService service(answers("Sure.</think>Calling." + kOpenCalls + kWeather + kCloseCalls + kEos));
  Json body = with_tools(request(true));
  body["instructions"] = "Be brief.";
  body["return_token_ids"] = true;
  const Json first = service.post(kPath, body)->json();
  const size_t held = first["prompt_token_ids"].size() + first["token_ids"].size() - 1;
  const Json result{{"type", "function_call_output"}, {"call_id", first["output"][2]["call_id"]}, {"output",
      "sunny"}};
  body["previous_response_id"] = first["id"];
  body["input"] = Json::array({result});
  const Json second = service.post(kPath, body)->json();
  EXPECT_EQ(second["usage"]["input_tokens_details"]["cached_tokens"], held) << second;
  EXPECT_EQ(second["previous_response_id"], first["id"]);
  // The same conversation, sent back whole.
  Json whole = with_tools(request(true));
  whole["instructions"] = "Be brief.";
  whole["return_token_ids"] = true;
  whole["input"] = Json::array({{{"role", "user"}, {"content", "hi"}}});
  for (const Json& item : first["output"]) whole["input"].push_back(item);
  whole["input"].push_back(result);
  EXPECT_EQ(service.post(kPath, whole)->json()["prompt_token_ids"], second["prompt_token_ids"]);
  // And by reference.
  for (Json& item : whole["input"])
    if (item.contains("id")) item = {{"type", "item_reference"}, {"id", item["id"]}};
  EXPECT_EQ(service.post(kPath, whole)->json()["prompt_token_ids"], second["prompt_token_ids"]);
}

TEST(ResponsesApi, StoresGivesAndDeletes) {
  TestService service(answers("Hi" + kEos));
  const Json whole = service.post(kPath, request())->json();
  const std::string path = kPath + "/" + whole["id"].get<std::string>();
  EXPECT_EQ(service.get(path)->json(), whole);
  const StreamReader streamed = stream(service, request());
  EXPECT_EQ(service.get(kPath + "/" + streamed.last()["id"].get<std::string>())->json(), streamed.last());

  const auto deleted = service.start("DELETE", path, "");
  deleted->wait();
  EXPECT_EQ(deleted->json()["deleted"], true);
  for (const char* method : {"GET", "DELETE"}) {
    const auto gone = service.start(method, path, "");
    gone->wait();
    EXPECT_EQ(gone->status(), 404);
    EXPECT_EQ(gone->json()["error"]["code"], "response_not_found");
  }
  Json body = request();
  body["previous_response_id"] = whole["id"];
  const auto orphan = service.post(kPath, body);
  EXPECT_EQ(orphan->status(), 404);
  EXPECT_EQ(orphan->json()["error"]["code"], "previous_response_not_found");
  EXPECT_EQ(orphan->json()["error"]["param"], "previous_response_id");

  Json unstored = request();
  unstored["store"] = false;
  const Json forgotten = service.post(kPath, unstored)->json();
  EXPECT_EQ(forgotten["store"], false);
  EXPECT_EQ(service.get(kPath + "/" + forgotten["id"].get<std::string>())->status(), 404);
}

TEST(ResponsesApi, AnswersWhatCodexSends) {
  TestService service(answers("Hi" + kEos));
  const auto probe = service.post(kPath, {{"model", "mini"}, {"input", Json::array()}, {"max_output_tokens", 1}});
  EXPECT_EQ(probe->status(), 200) << probe->body();
  Json body = with_tools(request());
  body["store"] = false;
  body["stream"] = true;
  body["include"] = Json::array({"reasoning.encrypted_content"});
  body["prompt_cache_key"] = "k";
  for (const char* kind : {"web_search", "image_generation", "local_shell"})
      body["tools"].push_back({{"type", kind}});
  const auto exchange = service.post(kPath, body);
  EXPECT_EQ(exchange->status(), 200) << exchange->body();
  EXPECT_EQ(exchange->header("X-Fathom-Ignored"),
            "tools[1] of type \"web_search\"; tools[2] of type \"image_generation\"; "
            "tools[3] of type \"local_shell\"");
  EXPECT_EQ(StreamReader(*exchange).last()["status"], "completed");
}

TEST(ResponsesApi, GivesCustomToolsTheirText) {
  const std::string call =
      "<｜DSML｜ invoke name=\"patch\">\n"
      "<｜DSML｜ parameter name=\"input\" string=\"true\">*** Begin\n\"x\"</｜DSML｜ parameter>\n"
      "</｜DSML｜ invoke>\n";
  TestService service(answers(kOpenCalls + call + kCloseCalls + kEos));
  Json body = request();
  body["tools"] = Json::array({{{"type", "custom"}, {"name", "patch"}, {"description", "Edits."}}});
  const StreamReader streamed = stream(service, body);
  ASSERT_EQ(streamed.output().size(), 1U) << streamed.output();
  EXPECT_EQ(streamed.output()[0]["type"], "custom_tool_call");
  EXPECT_EQ(streamed.output()[0]["input"], "*** Begin\n\"x\"");
  EXPECT_EQ(streamed.count("response.custom_tool_call_input.done"), 1);
}

TEST(ResponsesApi, TakesAndGivesTokenIds) {
  TestService service(answers("So.</think>Hello there, you." + kEos));
  Json body = request(true);
  body["return_token_ids"] = true;
  body["include"] = Json::array({"message.output_text.logprobs", "reasoning.encrypted_content"});
  const Json whole = service.post(kPath, body)->json();
  EXPECT_EQ(whole["token_ids"].size(), whole["usage"]["output_tokens"]);
  EXPECT_FALSE(whole["output"][0]["encrypted_content"].get<std::string>().empty());
  const Json& part = whole["output"][1]["content"][0];
  EXPECT_EQ(part["text"], "Hello there, you.");
  std::string spelled;
  for (const Json& logprob : part["logprobs"]) spelled += logprob["token"].get<std::string>();
  EXPECT_EQ(Json(spelled), part["text"]);
  const StreamReader streamed = stream(service, body);
  EXPECT_EQ(streamed.output()[1]["content"], whole["output"][1]["content"]);
  // The token that ends the answer comes with no piece of it.
  const std::vector<int32_t> all = whole["token_ids"];
  ASSERT_GE(all.size(), streamed.ids().size());
  EXPECT_TRUE(std::equal(streamed.ids().begin(), streamed.ids().end(), all.begin()));
  EXPECT_EQ(streamed.last()["token_ids"], whole["token_ids"]);
  Json ids = request(true);
  ids.erase("input");
  ids["prompt_token_ids"] = whole["prompt_token_ids"];
  EXPECT_EQ(service.post(kPath, ids)->json()["output"][1]["content"][0]["text"], "Hello there, you.");
}

TEST(ResponsesApi, RefusesWhatItCannotDo) {
  TestService service(answers("Hi" + kEos));
  Json body = request();
  body["background"] = true;
  const auto exchange = service.post(kPath, body);
  EXPECT_EQ(exchange->status(), 400);
  EXPECT_EQ(exchange->json()["error"]["param"], "background");
  EXPECT_EQ(service.get(kPath + "/resp_none")->status(), 404);
}

}  // namespace
}  // namespace fathom
