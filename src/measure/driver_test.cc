#include "measure/driver.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "measure/test_folder.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

Json valid() {
  return Json::parse(R"({
    "name": "test", "engine": "a test", "source": {"all": "a page"}, "unconfirmed": [], "notes": ["a note"],
    "ready": {"path": "/health"},
    "version": {"path": "/props", "pointer": "/version"},
    "model": {"path": "/v1/models", "pointer": "/data/0/id"},
    "capabilities": {"takes_ids": true, "gives_ids": true, "gives_logprobs": true, "continues_exactly": false},
    "completion": {
      "path": "/c", "body": {"prompt": "{ids_or_text}", "n": "{max_tokens}"},
      "when_ignore_eos": {"ignore_eos": true},
      "stream": {"end": "[DONE]", "ids": "/ids", "text": ["/a", "/b"], "prefill_ms": "/t", "decode_s": "/d",
                 "prefill_done": "/p/0", "prefill_total": "/p/1"}
    },
    "clear": {"method": "POST", "path": "/clear", "body": {}},
    "logprobs": {"path": "/c", "body": {"prompt": "{ids}", "k": "{count}"}, "entries": "/top", "id": "/1",
                 "logprob": "/0"},
    "tokenize": {"path": "/tokenize", "body": {"content": "{text}"}, "ids": "/tokens"}
  })");
}

std::string error_of(const Json& json) {
  const auto driver = parse_driver(json.dump(), "x.json");
  return driver.ok() ? "" : driver.error().message;
}

TEST(Driver, ReadsEveryMember) {
  const auto driver = parse_driver(valid().dump(), "x.json");
  ASSERT_TRUE(driver.ok()) << driver.error().message;
  EXPECT_EQ(driver->name, "test");
  EXPECT_EQ(driver->engine, "a test");
  EXPECT_EQ(driver->source, (std::vector<std::pair<std::string, std::string>>{{"all", "a page"}}));
  EXPECT_EQ(driver->notes, std::vector<std::string>{"a note"});
  EXPECT_EQ(driver->ready_path, "/health");
  EXPECT_EQ(driver->version->path, "/props");
  EXPECT_EQ(driver->model->pointer.to_string(), "/data/0/id");
  EXPECT_TRUE(driver->takes_ids && driver->gives_ids && driver->gives_logprobs && !driver->continues_exactly);
  EXPECT_FALSE(driver->chat.has_value());
  const StreamShape& stream = driver->completion->stream;
  EXPECT_TRUE(stream.ends_with_done);
  EXPECT_EQ(stream.ids->to_string(), "/ids");
  EXPECT_EQ(stream.text.size(), 2u);
  EXPECT_FALSE(stream.ids_accumulate || stream.text_accumulates);
  EXPECT_EQ(stream.prefill_unit_s, 1e-3);
  EXPECT_EQ(stream.decode_unit_s, 1.0);
  EXPECT_EQ(driver->completion->when_ignore_eos, Json({{"ignore_eos", true}}));
  EXPECT_EQ(driver->clear->path, "/clear");
  EXPECT_EQ(driver->clear->body, Json::object());
  EXPECT_EQ(driver->logprobs->id.to_string(), "/1");
  EXPECT_EQ(driver->tokenize->ids.to_string(), "/tokens");
}

TEST(Driver, NamesTheFileTheMemberWhatWasExpectedAndFound) {
  const std::tuple<const char*, Json, const char*> cases[] = {
      {"/name", 3, "x.json: name: expected a string that is not empty, found 3"},
      {"/name", "", "x.json: name: expected a string that is not empty, found \"\""},
      {"/source", Json::object(), "x.json: source: expected at least one fact and where it is from, found {}"},
      {"/source/all", 1, "x.json: source.all: expected a string that is not empty, found 1"},
      {"/unconfirmed", "x", "x.json: unconfirmed: expected a list of strings, found \"x\""},
      {"/ready/path", "health", "x.json: ready.path: expected a path that begins with /, found \"health\""},
      {"/version/pointer", "/a~2",
       "x.json: version.pointer: expected a JSON pointer, such as /choices/0/text, found "
       "\"/a~2\""},
      {"/capabilities/takes_ids", 1, "x.json: capabilities.takes_ids: expected true or false, found 1"},
      {"/completion/stream/end", "DONE",
       "x.json: completion.stream.end: expected \"[DONE]\" or a JSON pointer, found "
       "\"DONE\""},
      {"/completion/stream/text", Json(5),
       "x.json: completion.stream.text: expected a JSON pointer, such as "
       "/choices/0/text, found 5"},
      {"/completion/stream/prefill_s", "/x",
       "x.json: completion.stream.prefill_s: expected only one of prefill_ms and "
       "prefill_s, found both"},
      {"/completion/stream/idz", "/x", nullptr},
      {"/completion/body", Json::array(), "x.json: completion.body: expected an object, found []"},
      {"/completion/body/prompt", "{prompt}", nullptr},
      {"/clear", false, "x.json: clear: expected an object, found false"},
      {"/clear/method", nullptr, "x.json: clear.method: expected a string that is not empty, found null"},
      {"/extra", 1, nullptr}};
  for (const auto& [pointer, value, expected] : cases) {
    Json json = valid();
    json[JsonPointer(pointer)] = value;
    const std::string error = error_of(json);
    EXPECT_NE(error, "") << pointer;
    EXPECT_EQ(error, expected == nullptr ? error : expected) << pointer;
  }
  Json json = valid();
  json["completion"]["stream"]["idz"] = "/x";
  EXPECT_TRUE(
      error_of(json).starts_with("x.json: completion.stream.idz: expected one of cached_tokens, decode_ms,"));
  EXPECT_TRUE(error_of(json).ends_with(", found this name")) << error_of(json);
  json = valid();
  json["completion"]["body"]["deep"] = {{"prompt", "{prompt}"}};
  EXPECT_TRUE(error_of(json).starts_with("x.json: completion.body.deep.prompt: expected one of {ids}, {text},"));
  EXPECT_TRUE(error_of(json).ends_with("found {prompt}")) << error_of(json);
}

TEST(Driver, NamesWhatIsMissing) {
  const std::pair<const char*, const char*> cases[] = {
      {"name", "x.json: name: expected a string that is not empty, found nothing"},
      {"source", "x.json: source: expected an object: which fact, and where it is from, found nothing"},
      {"unconfirmed", "x.json: unconfirmed: expected a list of strings, found nothing"},
      {"ready", "x.json: ready: expected an object with a path, found nothing"},
      {"capabilities", "x.json: capabilities: expected an object, found nothing"},
      {"completion", "x.json: expected completion, chat or both, found neither"},
      {"clear", "x.json: clear: expected an object, or null where there is no way, found nothing"},
      {"logprobs",
       "x.json: logprobs: expected it exactly where capabilities.gives_logprobs is true, found nothing "
       "with true"}};
  for (const auto& [name, expected] : cases) {
    Json json = valid();
    json.erase(name);
    EXPECT_EQ(error_of(json), expected);
  }
  Json json = valid();
  json["completion"]["stream"].erase("ids");
  EXPECT_EQ(error_of(json),
            "x.json: capabilities.gives_ids: expected false without completion.stream.ids, found true");
  json = valid();
  json["completion"]["stream"].erase("prefill_total");
  EXPECT_EQ(error_of(json),
            "x.json: completion.stream.prefill_total: expected both prefill_done and prefill_total or "
            "neither, found one");
  json = valid();
  json["completion"]["body"]["prompt"] = "{text}";
  EXPECT_TRUE(
      error_of(json).starts_with("x.json: completion.body: expected \"{ids}\" or \"{ids_or_text}\" in it"));
}

TEST(Driver, RefusesWhatIsNoObject) {
  EXPECT_TRUE(parse_driver("{", "x.json").error().message.starts_with("x.json: expected JSON, found: "));
  EXPECT_EQ(parse_driver("[1]", "x.json").error().message, "x.json: : expected an object, found [1]");
  EXPECT_FALSE(parse_driver(std::string(100000, '['), "x.json").ok());
  EXPECT_FALSE(parse_driver("{\"name\": \"\xFF\"}", "x.json").ok());
}

TEST(Driver, FillsPlaceholdersAndLeavesOutWhatHasNoValue) {
  const Json body =
      Json::parse(R"({"a": "{ids}", "b": "{text}", "c": "{ids_or_text}", "d": {"e": "{max_tokens}", "f": "{seed}"},
      "g": [{"h": "{text}"}, "{model}", "plain"], "i": null, "t": "{temperature}", "k": "{count}"})");
  RequestValues values;
  values.ids = {5, 6};
  values.max_tokens = 7;
  values.temperature = 0.5;
  values.seed = UINT64_MAX;
  EXPECT_EQ(fill_body(body, values),
            Json::parse(R"({"a": [5, 6], "c": [5, 6], "d": {"e": 7, "f": 18446744073709551615},
      "g": [{}, "plain"], "i": null, "t": 0.5})"));
  values.ids.reset();
  values.text = "x";
  values.model = "m";
  values.count = 3;
  EXPECT_EQ(fill_body(body, values),
            Json::parse(R"({"b": "x", "c": "x", "d": {"e": 7, "f": 18446744073709551615},
      "g": [{"h": "x"}, "m", "plain"], "i": null, "t": 0.5, "k": 3})"));
}

TEST(Driver, TheProgramHasAllOfThem) {
  EXPECT_EQ(embedded_driver_names(), (std::vector<std::string>{"ds4", "fathom", "llama_cpp", "mlx_serve", "omlx",
                                                               "openai", "sglang", "vllm"}));
  for (const EmbeddedDriver& embedded : embedded_drivers()) {
    const auto driver = load_driver(std::string(embedded.name));
    ASSERT_TRUE(driver.ok()) << driver.error().message;
    EXPECT_EQ(driver->name, embedded.name);
    EXPECT_FALSE(driver->source.empty());
    EXPECT_TRUE(driver->chat && driver->completion) << embedded.name;
    const std::string path = std::string(FATHOM_SOURCE_DIR) + "/src/measure/drivers/" + driver->name + ".json";
    const auto file = read_text_file(path, 1 << 20);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(*file, embedded.text) << "the program's copy is not the file";
  }
}

TEST(Driver, IsLoadedFromAFileToo) {
  TestFolder folder;
  const std::string path = folder.write("own.json", valid().dump());
  const auto driver = load_driver(path);
  ASSERT_TRUE(driver.ok()) << driver.error().message;
  EXPECT_EQ(driver->name, "test");
  const auto unknown = load_driver("nonsense");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message,
            "driver: expected one of ds4, fathom, llama_cpp, mlx_serve, omlx, openai, sglang, "
            "vllm, or the path of a file, found \"nonsense\"");
  EXPECT_FALSE(load_driver("./missing.json").ok());
}

}  // namespace
}  // namespace fathom::measure
