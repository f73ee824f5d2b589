#include <gtest/gtest.h>

#include "server/test_exchange.h"

namespace fathom {
namespace {

Json script_of(const std::string& text) {
  return {{"answers", Json::array({{{"text", text}, {"uses", -1}}})}};
}
Json post(TestService& service, const Json& request) {
  const auto exchange = service.post("/v1/completions", request);
  EXPECT_EQ(exchange->status(), 200) << exchange->body();
  return exchange->json();
}

TEST(CompletionsApi, TakesTextIdsAndArraysOfThem) {
  TestService service(script_of(" there" + kEos));
  const std::vector<int32_t> ids = test_tokenizer().encode("Hello");
  std::vector<int32_t> with_bos = ids;
  with_bos.insert(with_bos.begin(), test_tokenizer().named().bos);

  const Json text = post(service, {{"prompt", "Hello"}, {"return_token_ids", true}});
  EXPECT_EQ(text["choices"][0]["text"], " there");
  EXPECT_EQ(text["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(text["choices"][0]["prompt_token_ids"], Json(with_bos));
  EXPECT_EQ(text["choices"][0]["token_ids"], Json(test_tokenizer().encode_with_special(" there" + kEos)));

  const Json by_ids = post(service, {{"prompt", ids}, {"return_token_ids", true}});
  EXPECT_EQ(by_ids["choices"][0]["prompt_token_ids"], Json(ids));
  const Json several = post(service, {{"prompt", {"a", "b"}}, {"n", 2}});
  ASSERT_EQ(several["choices"].size(), 4u);
  EXPECT_EQ(several["choices"][3]["index"], 3);
  EXPECT_EQ(several["usage"]["prompt_tokens"], 4);
  const Json id_lists = post(service, {{"prompt", Json::array({ids, with_bos})}, {"return_token_ids", true}});
  EXPECT_EQ(id_lists["choices"][1]["prompt_token_ids"], Json(with_bos));
  EXPECT_EQ(post(service, {{"prompt_token_ids", ids}})["usage"]["prompt_tokens"], ids.size());
}

TEST(CompletionsApi, ReadsControlTokensUnlessToldNotTo) {
  TestService service(script_of("x" + kEos));
  const int32_t user = test_tokenizer().named().user;
  Json request{{"prompt", "<｜User｜>hi"}, {"return_token_ids", true}, {"add_special_tokens", false}};
  EXPECT_EQ(post(service, request)["choices"][0]["prompt_token_ids"][0], user);
  request["parse_special"] = false;
  EXPECT_NE(post(service, request)["choices"][0]["prompt_token_ids"][0], user);
}

TEST(CompletionsApi, EchoesAndScores) {
  TestService service(script_of(" there" + kEos));
  const Json answer = post(service, {{"prompt", "Hello"}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}});
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], "<｜begin▁of▁sentence｜>Hello");
  EXPECT_EQ(choice["finish_reason"], "length");
  const size_t tokens = 1 + test_tokenizer().encode("Hello").size();
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), tokens);
  EXPECT_TRUE(choice["logprobs"]["token_logprobs"][0].is_null());
  EXPECT_EQ(choice["logprobs"]["token_logprobs"][1], -0.5);
  EXPECT_EQ(choice["logprobs"]["text_offset"][1], std::string("<｜begin▁of▁sentence｜>").size());
}

// As a whole it can be more than a client may owe, so it comes in portions; put together they are what the whole
// response says.
TEST(CompletionsApi, StreamsALongEchoInPortions) {
  TestService service(script_of(" there 👋" + kEos));
  std::string prompt;
  for (int word = 0; word < 400; ++word) prompt += word % 3 == 0 ? " 👋🏽" : " ünd 안녕";
  prompt += "\xF0\x9F\x91";  // a broken end
  std::vector<int32_t> ids = test_tokenizer().encode(prompt);
  for (const bool logprobs : {false, true}) {
    Json request{{"prompt", Json::array({ids, {1, 2}})}, {"n", 2}, {"echo", true}, {"return_token_ids", true}};
    if (logprobs) request["logprobs"] = 1;
    const Json whole = post(service, request);
    request["stream"] = true;
    std::vector<Json> choices(4);
    std::vector<int> chunks(4);
    for (const TestEvent& event : read_events(service.post("/v1/completions", request)->body())) {
      if (event.text == "[DONE]") continue;
      const Json choice = event.json()["choices"][0];
      EXPECT_LT(event.text.size(), 100000u);
      Json& sum = choices[choice["index"].get<size_t>()];
      ++chunks[choice["index"].get<size_t>()];
      if (sum.is_null()) {
        sum = choice;
        continue;
      }
      EXPECT_FALSE(choice.contains("prompt_token_ids")) << "once";
      sum["text"] = sum["text"].get<std::string>() + choice["text"].get<std::string>();
      for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
        if (!choice["logprobs"].is_null())
          for (const Json& item : choice["logprobs"][list]) sum["logprobs"][list].push_back(item);
    }
    EXPECT_GT(chunks[0], 8);
    for (size_t index = 0; index < 4; ++index) {
      const Json& expected = whole["choices"][index];
      EXPECT_EQ(choices[index]["text"], expected["text"]) << index;
      EXPECT_EQ(choices[index]["logprobs"], expected["logprobs"]) << index;
      EXPECT_EQ(choices[index].contains("prompt_token_ids"), index % 2 == 0) << index;
      EXPECT_EQ(choices[index].value("prompt_token_ids", Json()), expected.value("prompt_token_ids", Json()));
    }
    EXPECT_EQ(choices[0]["prompt_token_ids"], Json(ids));
    EXPECT_EQ(choices[2]["prompt_token_ids"], Json({1, 2}));
  }
}

TEST(CompletionsApi, StreamsAndStops) {
  for (const bool bytes : {false, true}) {
    Json script = script_of("one two 👋 three" + kEos);
    script["answers"][0]["bytes"] = bytes;
    TestService service(script);
    const auto exchange = service.post("/v1/completions", {{"prompt", "x"},
                                                           {"stream", true},
                                                           {"stop", "thr"},
                                                           {"logprobs", 1},
                                                           {"return_token_ids", true},
                                                           {"stream_options", {{"include_usage", true}}}});
    std::string text;
    int finishes = 0, tokens = 0;
    Json usage;
    for (const TestEvent& event : read_events(exchange->body())) {
      if (event.text == "[DONE]") continue;
      const Json chunk = event.json();
      if (chunk["choices"].empty()) {
        usage = chunk["usage"];
        continue;
      }
      const Json& choice = chunk["choices"][0];
      text += choice["text"].get<std::string>();
      EXPECT_EQ(choice["text"].get<std::string>().find("\xEF\xBF\xBD"), std::string::npos);
      if (choice.contains("token_ids")) tokens += static_cast<int>(choice["token_ids"].size());
      finishes += !choice["finish_reason"].is_null();
    }
    EXPECT_EQ(text, "one two 👋 ");
    EXPECT_EQ(finishes, 1);
    EXPECT_EQ(usage["completion_tokens"], tokens);
  }
}

TEST(CompletionsApi, FlushesABrokenCharacterOnce) {
  const std::string broken = "\xF0\x9F\x91";  // three of four bytes
  std::vector<int32_t> ids = test_tokenizer().encode("ok " + broken);
  Json script{{"answers", Json::array({{{"tokens", ids}}})}};
  TestService service(script);
  EXPECT_EQ(post(service, {{"prompt", "x"}})["choices"][0]["text"], "ok \xEF\xBF\xBD");
}

TEST(CompletionsApi, FillsAHole) {
  TestService service(script_of("x" + kEos));
  const NamedTokens& named = test_tokenizer().named();
  const Json ids = post(service, {{"prompt", "a"}, {"suffix", "b"}, {"return_token_ids", true}})["choices"][0]
                       ["prompt_token_ids"];
  EXPECT_EQ(ids[1], named.fim_begin);
  EXPECT_EQ(ids.back(), named.fim_end);
}

TEST(CompletionsApi, NamesWhatIsWrong) {
  TestService service(script_of("x" + kEos));
  const std::pair<Json, const char*> kWrong[] = {
      {Json::object(), "prompt"},
      {{{"prompt", 3}}, "prompt"},
      {{{"prompt", {1, -1}}}, "prompt[1]"},
      {{{"prompt", {1, 1000000}}}, "prompt[1]"},
      {{{"prompt", {1, 2.5}}}, "prompt[1]"},
      {{{"prompt", {"a", 1}}}, "prompt[1]"},
      {{{"prompt", Json::array()}}, "prompt"},
      {{{"prompt", "a"}, {"best_of", 3}}, "best_of"},
  };
  for (const auto& [request, param] : kWrong) {
    const auto exchange = service.post("/v1/completions", request);
    EXPECT_EQ(exchange->status(), 400) << request.dump();
    EXPECT_EQ(exchange->json()["error"]["param"], param) << exchange->body();
  }
}

TEST(CompletionsApi, RefusesTextsThatCannotFitWithoutEncodingThem) {
  TestService service(script_of("x" + kEos));
  const std::string text(size_t{8} << 20, 'a');
  for (const Json& prompt : {Json(text), Json::array({text})}) {
    const auto exchange = service.post("/v1/completions", {{"prompt", prompt}});
    EXPECT_EQ(exchange->status(), 400);
    EXPECT_EQ(exchange->json()["error"]["code"], "context_length_exceeded");
    EXPECT_NE(exchange->body().find("at least"), std::string::npos) << exchange->body();
  }
  const Json message{{"role", "user"}, {"content", text}};
  const auto exchange = service.post("/v1/chat/completions", {{"messages", Json::array({message})}});
  EXPECT_EQ(exchange->json()["error"]["param"], "messages");
  EXPECT_NE(exchange->body().find("at least"), std::string::npos) << exchange->body();
}

// By their number: none of them is looked at, the last would be refused.
TEST(CompletionsApi, RefusesTooManyIdsWithoutReadingThem) {
  TestService service(script_of("x" + kEos));
  const int64_t context_tokens = service.generator().status().context_tokens;
  std::vector<int32_t> ids(static_cast<size_t>(context_tokens) + 7, 1);
  ids.back() = -1;
  const std::string numbers = fmt::format("{} tokens, the context holds {}", ids.size(), context_tokens);
  const auto message = [](const Json& response) { return response["error"]["message"].get<std::string>(); };
  const std::pair<Json, const char*> kPrompts[] = {{{{"prompt", ids}}, "prompt"},
                                                   {{{"prompt_token_ids", ids}}, "prompt_token_ids"},
                                                   {{{"prompt", Json::array({{1, 2}, ids})}}, "prompt[1]"}};
  for (const auto& [request, member] : kPrompts) {
    const auto exchange = service.post("/v1/completions", request);
    EXPECT_EQ(exchange->status(), 400);
    EXPECT_EQ(exchange->json()["error"]["code"], "context_length_exceeded");
    EXPECT_EQ(message(exchange->json()), member + (": " + numbers));
  }
  const Json chat{{"prompt_token_ids", ids}, {"max_tokens", 1}};
  for (const char* path : {"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"}) {
    const auto exchange = service.post(path, chat);
    EXPECT_EQ(exchange->status(), 400) << path;
    EXPECT_EQ(message(exchange->json()), "prompt_token_ids: " + numbers) << path;
  }
}

TEST(TokensApi, TokenizesBothWays) {
  TestService service(script_of("x" + kEos));
  const std::string text = "un'abilità, 안녕 👋 <think>";
  const Json ids = service.post("/tokenize", {{"content", text}})->json()["tokens"];
  EXPECT_EQ(ids, Json(test_tokenizer().encode(text)));
  EXPECT_EQ(service.post("/detokenize", {{"tokens", ids}})->json()["content"], text);
  const Json special =
      service.post("/tokenize", {{"content", "<think>"}, {"parse_special", true}})->json()["tokens"];
  EXPECT_EQ(special, Json::array({test_tokenizer().named().think_open}));
  const Json pieces = service.post("/tokenize", {{"content", "a"}, {"with_pieces", true}})->json()["tokens"];
  EXPECT_EQ(pieces[0]["piece"], "a");
  const Json messages{{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}, {"thinking", false}};
  const Json rendered = service.post("/apply-template", messages)->json();
  EXPECT_EQ(service.post("/tokenize", messages)->json()["tokens"], rendered["prompt_token_ids"]);
  EXPECT_EQ(rendered["prompt"], "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜></think>");
  EXPECT_EQ(service.post("/detokenize", {{"tokens", {1, -7}}})->status(), 400);
  EXPECT_EQ(service.post("/tokenize", Json::object())->status(), 400);
}

}  // namespace
}  // namespace fathom
