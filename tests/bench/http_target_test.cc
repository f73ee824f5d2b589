// HttpTarget against the fake server in each dialect: ids, counts, claims and times against the server's own log,
// and every fault.
#include "measure/http_target.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace fathom::measure {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

/// As in fake_server.py.
int32_t next_id(int64_t position, int64_t last) {
  return static_cast<int32_t>((last * 31 + position * 7 + 11) % 1000 + 3);
}

std::vector<int32_t> expected_ids(std::vector<int32_t> prompt, int32_t count) {
  std::vector<int32_t> ids;
  for (int32_t number = 0; number < count; ++number) {
    ids.push_back(next_id(static_cast<int64_t>(prompt.size()), prompt.back()));
    prompt.push_back(ids.back());
  }
  return ids;
}

std::string text_of(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += fmt::format(" t{}", id);
  return text;
}

std::vector<int32_t> numbers(int32_t first, int32_t count) {
  std::vector<int32_t> ids;
  for (int32_t number = 0; number < count; ++number) ids.push_back(first + number);
  return ids;
}

class FakeServer {
 public:
  explicit FakeServer(const std::string& dialect, const std::string& faults = "",
                      std::chrono::seconds ready = 600s) {
    static int count = 0;
    folder_ = std::filesystem::path(::testing::TempDir()) / fmt::format("fathom_fake_{}_{}", ::getpid(), ++count);
    std::filesystem::create_directories(folder_);
    auto driver = load_driver(dialect);
    EXPECT_TRUE(driver.ok()) << driver.error().message;
    HttpTargetOptions options;
    options.driver = *driver;
    options.command = fmt::format("exec python3 {}/tests/bench/fake_server.py {} --port {{port}} --log '{}' {}",
                                  FATHOM_SOURCE_DIR, dialect, (folder_ / "requests").string(), faults);
    options.log_path = (folder_ / "log").string();
    options.key = "a key";
    options.ready_limit = ready;
    target_ = std::make_unique<HttpTarget>(std::move(options));
    info_ = target_->start();
  }
  ~FakeServer() {
    target_.reset();
    std::filesystem::remove_all(folder_);
  }

  HttpTarget& target() { return *target_; }
  const Result<TargetInfo>& info() const { return info_; }

  std::vector<Json> log(const std::string& what = "") const {
    std::vector<Json> lines;
    std::ifstream file(folder_ / "requests");
    for (std::string line; std::getline(file, line);) {
      Json json = Json::parse(line, nullptr, false);
      if (!json.is_discarded() && (what.empty() || json["what"] == what)) lines.push_back(std::move(json));
    }
    return lines;
  }
  Json last_body() const { return log("request").back()["body"]; }

 private:
  std::filesystem::path folder_;
  std::unique_ptr<HttpTarget> target_;
  Result<TargetInfo> info_ = Error::state("not started");
};

GenerateRequest request_of(std::vector<int32_t> prompt, int32_t max_tokens = 12) {
  GenerateRequest request;
  request.prompt_text = text_of(prompt);
  request.prompt_ids = std::move(prompt);
  request.max_tokens = max_tokens;
  request.time_limit = 600s;
  request.silence_limit = 600s;
  return request;
}

/// One entry of token_ns a token or an event; the server wrote down when it sent each, always before it did.
void expect_times(const Generation& answer, const std::vector<Json>& sent, int64_t received_ns, bool per_event) {
  std::vector<int64_t> sent_ns;
  for (const Json& event : sent)
    sent_ns.insert(sent_ns.end(), per_event ? 1 : event["ids"].size(), event["ns"].get<int64_t>());
  ASSERT_EQ(answer.token_ns.size(), sent_ns.size());
  EXPECT_LE(answer.sent_ns, received_ns);
  for (size_t index = 0; index < sent_ns.size(); ++index) {
    EXPECT_GE(answer.token_ns[index], sent_ns[index]) << index;
    if (index > 0) {
      EXPECT_GE(answer.token_ns[index], answer.token_ns[index - 1]);
    }
  }
  EXPECT_GE(answer.ended_ns, answer.token_ns.back());
}

struct Dialect {
  const char* name;
  bool takes_ids, gives_ids, tells_cache, tells_times;
  const char* engine;
  const char* finish;
};
void PrintTo(const Dialect& dialect, std::ostream* out) { *out << dialect.name; }

class HttpTargetDialect : public ::testing::TestWithParam<Dialect> {};

TEST_P(HttpTargetDialect, GeneratesAsTheServerDoes) {
  const Dialect& dialect = GetParam();
  FakeServer server(dialect.name, "--prefill-us 200 --token-us 2000");
  ASSERT_TRUE(server.info().ok()) << server.info().error().message;
  EXPECT_EQ(server.info()->engine, dialect.engine);
  EXPECT_EQ(server.info()->driver, dialect.name);
  EXPECT_EQ(server.info()->model, "fake-model");
  EXPECT_EQ(server.info()->takes_ids, dialect.takes_ids);
  EXPECT_EQ(server.info()->gives_ids, dialect.gives_ids);
  EXPECT_TRUE(server.info()->is_http);
  EXPECT_TRUE(server.info()->address.starts_with("http://127.0.0.1:"));
  const std::vector<int32_t> prompt = numbers(100, 40);
  GenerateRequest request = request_of(prompt);
  request.temperature = 0.5;
  request.seed = 43;
  const Generation answer = server.target().generate(request);
  ASSERT_EQ(answer.error, "");
  const std::vector<int32_t> expected = expected_ids(prompt, 12);
  EXPECT_EQ(answer.ids, dialect.gives_ids ? expected : std::vector<int32_t>{});
  EXPECT_EQ(answer.text, text_of(expected));
  EXPECT_EQ(answer.finish_reason, dialect.finish);
  EXPECT_EQ(answer.claimed_prompt_tokens, 40);
  EXPECT_EQ(answer.claimed_output_tokens, 12);
  EXPECT_EQ(answer.claimed_cached_tokens, dialect.tells_cache ? std::optional<int64_t>(0) : std::nullopt);
  EXPECT_EQ(answer.claimed_prefill_s.has_value(), dialect.tells_times);
  if (dialect.tells_times) {
    EXPECT_NEAR(*answer.claimed_prefill_s, 40 * 200e-6, 1e-9);
    EXPECT_GT(*answer.claimed_decode_s, 12 * 2000e-6);
  }
  const Json received = server.log("request").back();
  expect_times(answer, server.log("tokens"), received["ns"], !dialect.gives_ids);
  EXPECT_EQ(received["key"], "Bearer a key");
  const std::string body = received["body"].dump();
  EXPECT_NE(body.find("0.5"), std::string::npos) << body;
  EXPECT_NE(body.find("43"), std::string::npos) << body;
  EXPECT_EQ(body.find("{"), 0u);
  EXPECT_EQ(body.find("_or_text"), std::string::npos) << body;
  if (std::string(dialect.name) == "llama_cpp") {
    ASSERT_TRUE(answer.prefill_end_ns.has_value());
    EXPECT_GE(*answer.prefill_end_ns, server.log("prefill").back()["ns"]);
    EXPECT_LE(*answer.prefill_end_ns, answer.token_ns.front());
  }
  EXPECT_GT(server.target().usage().resident_bytes.value_or(0), 0);
}

TEST_P(HttpTargetDialect, AConversationGoesOnAndIsForgotten) {
  const Dialect& dialect = GetParam();
  FakeServer server(dialect.name);
  ASSERT_TRUE(server.info().ok()) << server.info().error().message;
  std::vector<int32_t> prompt = numbers(100, 30);
  ASSERT_EQ(server.target().generate(request_of(prompt)).error, "");
  for (const int32_t id : expected_ids(prompt, 12)) prompt.push_back(id);
  for (const int32_t id : numbers(500, 20)) prompt.push_back(id);
  const Generation next = server.target().generate(request_of(prompt));
  ASSERT_EQ(next.error, "");
  EXPECT_EQ(next.claimed_prompt_tokens, 62);
  // All but the last answer's last token, and the 20 new ones.
  if (dialect.tells_cache) {
    EXPECT_EQ(next.claimed_cached_tokens, 41);
  }
  const bool can_clear = load_driver(dialect.name)->clear.has_value();
  EXPECT_EQ(server.target().clear_state(), can_clear);
  if (can_clear) {
    EXPECT_EQ(server.target().generate(request_of(prompt)).claimed_cached_tokens, 0);
    // For one request only.
    EXPECT_EQ(server.target().generate(request_of(prompt)).claimed_cached_tokens, 61);
  }
}

TEST_P(HttpTargetDialect, ChatsInText) {
  FakeServer server(GetParam().name);
  ASSERT_TRUE(server.info().ok()) << server.info().error().message;
  GenerateRequest request;
  request.prompt_text = "t5 t6 t7";
  request.is_chat = true;
  request.max_tokens = 4;
  const Generation answer = server.target().generate(request);
  EXPECT_EQ(answer.error, "");
  EXPECT_EQ(answer.text, text_of(expected_ids({5, 6, 7}, 4)));
  EXPECT_EQ(answer.token_ns.size(), 4u);
  EXPECT_EQ(answer.claimed_output_tokens, 4);
  EXPECT_EQ(server.last_body()["messages"], Json::parse(R"([{"role": "user", "content": "t5 t6 t7"}])"));
}

TEST_P(HttpTargetDialect, ExcludesTheEndOfAnswersWhereItCan) {
  const Dialect& dialect = GetParam();
  FakeServer server(dialect.name, "--eos-after 5");
  ASSERT_TRUE(server.info().ok()) << server.info().error().message;
  const std::vector<int32_t> prompt = numbers(7, 9);
  GenerateRequest request = request_of(prompt);
  const bool can_exclude = std::string(dialect.name) != "ds4";
  EXPECT_EQ(server.target().generate(request).claimed_output_tokens, can_exclude ? 12 : 5);
  request.ignore_eos = false;
  const Generation answer = server.target().generate(request);
  EXPECT_EQ(answer.error, "");
  EXPECT_EQ(answer.claimed_output_tokens, 5);
  EXPECT_EQ(answer.text, text_of(expected_ids(prompt, 5)));
}

TEST_P(HttpTargetDialect, TokensOfOneEventShareATime) {
  const Dialect& dialect = GetParam();
  FakeServer server(dialect.name, "--per-event 3 --token-us 1000");
  ASSERT_TRUE(server.info().ok()) << server.info().error().message;
  const Generation answer = server.target().generate(request_of(numbers(3, 5), 8));
  ASSERT_EQ(answer.error, "");
  expect_times(answer, server.log("tokens"), server.log("request").back()["ns"], !dialect.gives_ids);
  if (!dialect.gives_ids) {
    EXPECT_EQ(answer.token_ns.size(), 3u);
    return;
  }
  ASSERT_EQ(answer.token_ns.size(), 8u);
  for (size_t index : {1, 2, 4, 5, 7}) EXPECT_EQ(answer.token_ns[index], answer.token_ns[index - 1]) << index;
}

TEST_P(HttpTargetDialect, NamesWrongIds) {
  const Dialect& dialect = GetParam();
  FakeServer server(dialect.name, "--wrong-ids");
  ASSERT_TRUE(server.info().ok()) << server.info().error().message;
  const Generation answer = server.target().generate(request_of(numbers(3, 5), 8));
  // Text may be other tokens than we think; ids may not.
  EXPECT_EQ(answer.error.starts_with("wrong ids"), dialect.takes_ids) << answer.error;
  EXPECT_EQ(answer.token_ns.size(), 8u);
}

/// What came before a fault counts; returns the error.
std::string error_after_four_tokens(const std::string& dialect, const std::string& fault) {
  FakeServer server(dialect, fault + " 4");
  EXPECT_TRUE(server.info().ok()) << server.info().error().message;
  GenerateRequest request = request_of(numbers(3, 5), 8);
  // Long enough for a server of any slowness to be heard of, where silence is what it is about.
  if (fault == "--hang-after") request.silence_limit = 3s;
  const Generation answer = server.target().generate(request);
  EXPECT_EQ(answer.text, text_of(expected_ids(numbers(3, 5), 4))) << fault;
  EXPECT_EQ(answer.token_ns.size(), 4u) << fault;
  return answer.error;
}

TEST_P(HttpTargetDialect, KeepsWhatCameBeforeItFailed) {
  const std::string dialect = GetParam().name;
  EXPECT_EQ(error_after_four_tokens(dialect, "--error-after"), "the server says: the fake server failed");
  const std::string died = error_after_four_tokens(dialect, "--die-after");
  EXPECT_TRUE(died.starts_with("stream cut: ")) << died;
  EXPECT_NE(died.find("the server ended with exit status 3"), std::string::npos) << died;
  EXPECT_NE(died.find("fake server: dying as it was told to"), std::string::npos) << died;
}

INSTANTIATE_TEST_SUITE_P(
    All, HttpTargetDialect,
    ::testing::Values(Dialect{"fathom", true, true, true, true, "fathom serve 9.8.7", "length"},
                      Dialect{"llama_cpp", true, true, true, true, "llama.cpp server b9876", "limit"},
                      Dialect{"vllm", true, true, true, false, "vLLM 0.99", "length"},
                      Dialect{"sglang", true, true, true, false, "SGLang 0.77", "length"},
                      Dialect{"mlx_serve", true, false, false, false, "mlx-serve", "length"},
                      Dialect{"omlx", true, false, true, true, "oMLX", "length"},
                      Dialect{"ds4", false, false, true, false, "ds4-server", "length"}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST(HttpTarget, CacheBehavioursAreClaimed) {
  for (const auto& [behaviour, cached] :
       {std::pair{"exact", 41}, std::pair{"reprocessed", 29}, std::pair{"none", 0}}) {
    FakeServer server("vllm", std::string("--cache ") + behaviour);
    ASSERT_TRUE(server.info().ok()) << server.info().error().message;
    std::vector<int32_t> prompt = numbers(100, 30);
    ASSERT_EQ(server.target().generate(request_of(prompt)).error, "");
    for (const int32_t id : expected_ids(prompt, 12)) prompt.push_back(id);
    for (const int32_t id : numbers(500, 20)) prompt.push_back(id);
    EXPECT_EQ(server.target().generate(request_of(prompt)).claimed_cached_tokens, cached) << behaviour;
  }
}

TEST(HttpTarget, LogprobsAreSortedAndCut) {
  for (const char* dialect : {"llama_cpp", "vllm", "sglang"}) {
    FakeServer server(dialect);
    ASSERT_TRUE(server.info().ok()) << server.info().error().message;
    const auto tokens = server.target().next_logprobs({5, 6, 7}, 3);
    ASSERT_TRUE(tokens.ok()) << tokens.error().message;
    ASSERT_EQ(tokens->size(), 3u) << dialect;
    const int32_t best = next_id(3, 7);
    for (size_t index = 0; index < 3; ++index) {
      EXPECT_EQ((*tokens)[index].id, (best + static_cast<int32_t>(index)) % 1000) << dialect;
      EXPECT_DOUBLE_EQ((*tokens)[index].logprob, -0.5 - static_cast<double>(index));
    }
  }
  FakeServer server("ds4");
  EXPECT_EQ(server.target().next_logprobs({5}, 3).error().message,
            "driver ds4 gives no log probabilities with ids");
}

TEST(HttpTarget, TokenizesWithTheServersTokenizer) {
  for (const char* dialect : {"fathom", "llama_cpp", "vllm", "sglang", "mlx_serve"}) {
    FakeServer server(dialect);
    const auto ids = server.target().tokenize("t12 t13");
    ASSERT_TRUE(ids.ok()) << dialect << ids.error().message;
    EXPECT_EQ(*ids, (std::vector<int32_t>{12, 13}));
  }
  FakeServer server("ds4");
  EXPECT_FALSE(server.target().tokenize("x").ok());
}

TEST(HttpTarget, WaitsForALateServer) {
  FakeServer server("fathom", "--late 0.3");
  ASSERT_TRUE(server.info().ok()) << server.info().error().message;
  EXPECT_EQ(server.target().generate(request_of({5, 6, 7})).error, "");
}

TEST(HttpTarget, SaysWhyAServerDidNotStart) {
  const FakeServer dead("fathom", "--die-at-start");
  ASSERT_FALSE(dead.info().ok());
  EXPECT_TRUE(dead.info().error().message.starts_with("the server ended with exit status 7; the end of its log"));
  EXPECT_TRUE(dead.info().error().message.ends_with("fake server: cannot load the model"));
  const FakeServer late("fathom", "--late 100000", 1s);
  ASSERT_FALSE(late.info().ok());
  EXPECT_TRUE(late.info().error().message.starts_with("the server was not ready after 1 s"));
}

TEST(HttpTarget, TellsARefusal) {
  FakeServer server("vllm", "--status 429");
  ASSERT_TRUE(server.info().ok()) << server.info().error().message;
  EXPECT_TRUE(server.target().generate(request_of({5})).error.starts_with("status 429: the fake server refuses"));
  EXPECT_FALSE(server.target().clear_state());
  EXPECT_FALSE(server.target().next_logprobs({5}, 1).ok());
}

TEST(HttpTarget, KeepsWhatCameBeforeTheStreamWasCut) {
  for (const auto& [fault, beginning] : {std::pair{"--cut-after", "stream cut: the server closed before"},
                                         std::pair{"--bad-utf8-after", "invalid UTF-8 in an event: byte 0xff"},
                                         std::pair{"--hang-after", "silence: not one byte for 3 s"}}) {
    const std::string error = error_after_four_tokens("fathom", fault);
    EXPECT_TRUE(error.starts_with(beginning)) << error;
  }
}

TEST(HttpTarget, ADeadServerIsNotAskedInVain) {
  FakeServer server("fathom", "--die-after 0");
  EXPECT_TRUE(server.target().generate(request_of({5})).error.starts_with("stream cut: "));
  EXPECT_TRUE(server.target().generate(request_of({5})).error.starts_with("connection refused"));
  // A new process takes its place.
  ASSERT_TRUE(server.target().start().ok());
  EXPECT_TRUE(server.target().generate(request_of({5})).error.starts_with("stream cut: "));
}

TEST(HttpTarget, AnEndlessAnswerIsGivenUp) {
  FakeServer server("llama_cpp", "--endless");
  const Generation seen = server.target().generate(request_of({5}));
  EXPECT_NE(seen.error.find("the server sent more than"), std::string::npos) << seen.error;
}

TEST(HttpTarget, AMissingEndMarkIsACut) {
  FakeServer server("omlx", "--no-done");
  EXPECT_EQ(server.target().generate(request_of({5})).error, "stream cut: it closed without [DONE]");
}

TEST(HttpTarget, MeasuresAServerThatRunsAlready) {
  FakeServer first("llama_cpp");
  ASSERT_TRUE(first.info().ok()) << first.info().error().message;
  HttpTarget second({.driver_name = "own.json", .driver = *load_driver("llama_cpp"),
                     .address = first.info()->address + "/", .model = "named"});
  EXPECT_EQ(second.generate(request_of({5})).error, "target llama_cpp: it is not started");
  const auto info = second.start();
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->model, "named");
  EXPECT_EQ(info->driver, "own.json");
  EXPECT_EQ(info->command, "");
  EXPECT_EQ(second.generate(request_of({5}, 2)).ids, expected_ids({5}, 2));
  EXPECT_FALSE(second.usage().resident_bytes.has_value());
  second.stop();
  EXPECT_EQ(first.target().generate(request_of({5}, 2)).error, "");
  first.target().stop();
  EXPECT_TRUE(second.start().error().message.starts_with("connection refused"));
}

TEST(HttpTarget, AFreePortTakesThePlaceOfTheAddressesPort) {
  const std::string command = fmt::format("exec python3 {}/tests/bench/fake_server.py vllm --port {{port}}",
                                          FATHOM_SOURCE_DIR);
  const std::string log =
      (std::filesystem::path(::testing::TempDir()) / fmt::format("fathom_port_{}", ::getpid())).string();
  for (const char* address :
       {"http://127.0.0.1:1", "http://127.0.0.1", "http://localhost:1/", "http://127.0.0.1:1/v1"}) {
    HttpTarget target({.driver = *load_driver("vllm"), .command = command, .address = address, .log_path = log});
    const auto info = target.start();
    ASSERT_TRUE(info.ok()) << info.error().message;
    EXPECT_EQ(info->address.find(":1/"), std::string::npos) << info->address;
    EXPECT_EQ(target.generate(request_of({5}, 2)).error, "") << address;
  }
  // An address in brackets keeps its colons. Nothing listens there.
  HttpTarget target({.driver = *load_driver("vllm"),
                     .command = command,
                     .address = "http://[::1]:1",
                     .log_path = log,
                     .ready_limit = 100ms});
  EXPECT_TRUE(target.start().error().message.starts_with("the server was not ready after 0.1 s"));
  std::filesystem::remove(log);
}

TEST(HttpTarget, RefusesRequestsThatItCannotSend) {
  FakeServer server("ds4");
  GenerateRequest ids_only = request_of({5});
  ids_only.prompt_text.clear();
  EXPECT_TRUE(server.target().generate(ids_only).error.starts_with("driver ds4: expected a prompt as text"));
  GenerateRequest bad = request_of({5});
  bad.prompt_text = "a\xFF";
  EXPECT_EQ(server.target().generate(bad).error, "prompt: expected UTF-8, found byte 0xff at offset 1");
  HttpTarget nowhere({.driver = *load_driver("ds4")});
  EXPECT_EQ(nowhere.start().error().message, "target: expected an address or a command, found neither");
  HttpTarget unknown({.driver = *load_driver("ds4"), .command = "serve"});
  EXPECT_TRUE(
      unknown.start().error().message.starts_with("target: expected \"{port}\" in the command, or an address"));
}

}  // namespace
}  // namespace fathom::measure
