#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "grammar/test_walks.h"

namespace fathom {
namespace {

using Json = nlohmann::json;

std::shared_ptr<const Grammar> compile(std::string_view schema) {
  auto text = json_schema_gbnf(schema);
  EXPECT_TRUE(text.ok()) << schema << "\n" << (text.ok() ? "" : text.error().message);
  if (!text.ok()) return nullptr;
  auto grammar = compile_gbnf(*text, test_vocabulary());
  EXPECT_TRUE(grammar.ok()) << *text << "\n" << (grammar.ok() ? "" : grammar.error().message);
  return grammar.ok() ? *grammar : nullptr;
}

std::string refusal(std::string_view schema) {
  auto text = json_schema_gbnf(schema);
  return text.ok() ? "accepted" : text.error().message;
}

void check(std::string_view schema, const std::vector<std::string>& good,
           const std::vector<std::string>& bad) {
  const auto grammar = compile(schema);
  ASSERT_NE(grammar, nullptr);
  for (const std::string& text : good) EXPECT_TRUE(takes(*grammar, text)) << schema << "\n" << text;
  for (const std::string& text : bad) EXPECT_FALSE(takes(*grammar, text)) << schema << "\n" << text;
}

/// Whether `value` satisfies `schema`, by reading the standard: only the keywords that these tests use.
class Validator {
 public:
  explicit Validator(const Json& document) : document_(document) {}

  bool valid(const Json& schema, const Json& value) const {
    if (schema.is_boolean()) return schema.get<bool>();
    for (const auto& [key, rule] : schema.items())
      if (!holds(schema, key, rule, value)) return false;
    return true;
  }

 private:
  static bool has_type(const std::string& type, const Json& value) {
    if (type == "integer") return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
    if (type == "number") return value.is_number();
    return type == value.type_name();
  }
  static int64_t length(const std::string& text) {
    return std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; });
  }
  int count(const Json& schemas, const Json& value) const {
    return static_cast<int>(
        std::count_if(schemas.begin(), schemas.end(), [&](const Json& s) { return valid(s, value); }));
  }

  bool holds(const Json& schema, const std::string& key, const Json& rule, const Json& value) const {
    if (key == "type") {
      if (rule.is_string()) return has_type(rule, value);
      return std::any_of(rule.begin(), rule.end(), [&](const Json& type) { return has_type(type, value); });
    }
    if (key == "enum") return std::find(rule.begin(), rule.end(), value) != rule.end();
    if (key == "const") return rule == value;
    if (key == "anyOf") return count(rule, value) > 0;
    if (key == "oneOf") return count(rule, value) == 1;
    if (key == "allOf") return count(rule, value) == static_cast<int>(rule.size());
    if (key == "$ref")
      return valid(document_.at(Json::json_pointer(rule.get<std::string>().substr(1))), value);
    if (value.is_number()) {
      const auto number = value.get<double>();
      if (key == "minimum") return number >= rule.get<double>();
      if (key == "maximum") return number <= rule.get<double>();
      if (key == "exclusiveMinimum") return number > rule.get<double>();
      if (key == "exclusiveMaximum") return number < rule.get<double>();
    }
    if (value.is_string()) {
      const auto text = value.get<std::string>();
      if (key == "minLength") return length(text) >= rule.get<int64_t>();
      if (key == "maxLength") return length(text) <= rule.get<int64_t>();
      if (key == "pattern") return std::regex_search(text, std::regex(rule.get<std::string>()));
    }
    if (value.is_array()) {
      if (key == "minItems") return value.size() >= rule.get<size_t>();
      if (key == "maxItems") return value.size() <= rule.get<size_t>();
      const size_t first = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
      for (size_t k = 0; k < value.size(); ++k) {
        if (key == "prefixItems" && k < first && !valid(rule[k], value[k])) return false;
        if (key == "items" && k >= first && !valid(rule, value[k])) return false;
      }
    }
    return !value.is_object() || holds_object(schema, key, rule, value);
  }

  bool holds_object(const Json& schema, const std::string& key, const Json& rule, const Json& value) const {
    if (key == "required")
      return std::all_of(rule.begin(), rule.end(),
                         [&](const Json& name) { return value.contains(name.get<std::string>()); });
    for (const auto& [name, member] : value.items()) {
      const bool declared = schema.contains("properties") && schema["properties"].contains(name);
      if (key == "properties" && declared && !valid(rule[name], member)) return false;
      if (key == "additionalProperties" && !declared && !valid(rule, member)) return false;
    }
    return true;
  }

  const Json& document_;
};

void walk(std::string_view schema, int walks = 40) {
  const auto grammar = compile(schema);
  ASSERT_NE(grammar, nullptr);
  const Json document = Json::parse(schema);
  std::mt19937 random(11);
  for (int round = 0; round < walks; ++round) {
    const std::string text = random_text(*grammar, random, 20 + round * 3);
    const Json value = Json::parse(text, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << schema << "\n" << text;
    EXPECT_TRUE(Validator(document).valid(document, value)) << schema << "\n" << text;
    EXPECT_TRUE(takes(*grammar, text)) << text;
  }
}

TEST(JsonSchema, AnyObject) {
  auto grammar = compile_gbnf(json_object_gbnf(), test_vocabulary());
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  for (const char* good :
       {"{}", "{\"a\":1}", "{\"a\": [1, 2.5e-3,{}], \"b\":null}", "{\n  \"a\": \"\xE6\x97\xA5\"\n}",
        R"({"\u00e9\ud83d\ude00\n":"\/\\\""})", "{\"a\":-0.0}"})
    EXPECT_TRUE(takes(**grammar, good)) << good;
  for (const char* bad : {"",
                          "[]",
                          "{",
                          "{}}",
                          "{\"a\":01}",
                          "{\"a\":1,}",
                          "{\"a\"}",
                          "{\"a\":\"\n\"}",
                          "{'a':1}",
                          " {}",
                          R"({"\ud83d":1})",
                          R"({"\ude00":1})",
                          "{\"a\":\"\xFF\"}",
                          "{\"a\":\"\xED\xA0\x80\"}",
                          "{\"a\":  1}",
                          "{\"a\":1e999}",
                          "{\"a\":\"\xC0\x80\"}",
                          "{\"a\":.5}",
                          "{\"a\":+1}",
                          "{\"a\":\"\\x\"}"})
    EXPECT_FALSE(takes(**grammar, bad)) << bad;
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const std::string text = random_text(**grammar, random, 150);
    EXPECT_TRUE(Json::parse(text, nullptr, false).is_object()) << text;
  }
}

TEST(JsonSchema, Types) {
  check(R"({"type":"null"})", {"null"}, {"true", "0"});
  check(R"({"type":["boolean","null"]})", {"true", "false", "null"}, {"0", "\"\""});
  check(R"({"type":"integer"})", {"0", "-7", "123456789012345678"}, {"-0", "1.0", "01", "1e3", "+1"});
  check(R"({"type":"number"})", {"0", "-0", "1.5", "1e3", "-2.5E-7"}, {"1.", ".5", "0x1", "NaN", "1e999"});
  check(R"({"type":"array"})", {"[]", "[1,\"a\"]", "[\n  1,\n  2\n]"}, {"{}", "[1,]"});
  check("true", {"1", "{}", "\"x\"", "[]"}, {"x"});
  check("{}", {"1", "{}", "\"x\"", "null"}, {""});
  check(
      R"({"title":"t","description":"d","default":1,"examples":[2],"$comment":"c","$schema":"s","$id":"i"})",
      {"3"}, {""});
  EXPECT_NE(refusal("false").find("no value satisfies"), std::string::npos) << refusal("false");
  EXPECT_NE(refusal(R"({"type":"text"})").find("#/type"), std::string::npos);
  EXPECT_NE(refusal("3").find("expected a schema"), std::string::npos);
  EXPECT_NE(refusal(R"({"properties":{"a":null}})").find("#/properties/a"), std::string::npos);
  // Keywords speak only of values of their type.
  check(R"({"minLength":2,"minimum":5})", {"\"ab\"", "5", "null", "[]"}, {"\"a\"", "4"});
}

TEST(JsonSchema, Constants) {
  check(R"({"enum":["a","b\"c",1,null,[1,{"x":2}]]})",
        {"\"a\"", "\"b\\\"c\"", "1", "null", "[1, {\"x\": 2}]"}, {"\"b\"", "2"});
  check(R"({"const":"x"})", {"\"x\""}, {"\"y\"", "x"});
  check(R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"});
  check(R"({"type":["string","null"],"enum":["a",null]})", {"\"a\"", "null"}, {"\"\""});
  check(R"({"allOf":[{"enum":[1,2,3]},{"enum":[2.0,3,4]}]})", {"3"}, {"1", "4"});
  EXPECT_NE(refusal(R"({"enum":["abc"],"minLength":4})").find("#/enum"), std::string::npos);
  EXPECT_NE(refusal(R"({"type":"integer","const":"a"})").find("no value"), std::string::npos);
  EXPECT_NE(refusal(R"({"enum":[]})").find("#/enum"), std::string::npos);
}

TEST(JsonSchema, MembersAndCommas) {
  const char* schema =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}},
      "required":["b"],"additionalProperties":false})";
  check(
      schema,
      {R"({"b":1})", R"({"a":1,"b":2})", R"({"b":1,"c":2})", R"({"a":1, "b":2, "c":3})", "{\n  \"b\": 1\n}"},
      {"{}", R"({"a":1})", R"({"b":1,"a":2})", R"({"b":1,})", R"({,"b":1})", R"({"b":1,"b":2})",
       R"({"b":1,"d":2})", R"({"a":1"b":2})"});
  check(
      R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"additionalProperties":false})",
      {"{}", R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"},
      {R"({"b":null,"a":null})", R"({,})"});
  check(
      R"({"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":{"type":"integer"}})",
      {"{}", R"({"a":null})", R"({"a":null,"b":1})", R"({"b":1,"ab":2,"":3})", R"({"A":1})"},
      {R"({"a":1})", R"({"b":1,"a":null})", R"({"b":null})", R"({"b":1,"\u0061":2})", R"({"a":null,"a":1})"});
  check(R"({"type":"object","properties":{"a":{"type":"null"}},"required":["a"]})",
        {R"({"a":null})", R"({"a":null,"x":[{}]})"}, {"{}", R"({"x":1})"});
  check(R"({"type":"object","required":["z"],"additionalProperties":{"type":"integer"}})",
        {R"({"z":1})", R"({"z":1,"y":2})"}, {"{}", R"({"y":1})", R"({"z":null})"});
  check(R"({"type":"object","properties":{"a":false,"b":true},"additionalProperties":false})",
        {"{}", R"({"b":[]})"}, {R"({"a":1})"});
  check(
      R"({"type":"object","properties":{"a\"b/~":{"const":1}},"required":["a\"b/~"],
           "additionalProperties":false})",
      {R"({"a\"b/~":1})"}, {"{}"});
  EXPECT_NE(refusal(R"({"type":"object","properties":{"a":false},"required":["a"]})").find("no value"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"type":"object","patternProperties":{"a":{}}})").find("#/patternProperties"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"properties":{"a/b":{"multipleOf":3}}})").find("#/properties/a~1b/multipleOf"),
            std::string::npos);
}

TEST(JsonSchema, EveryCombinationOfMembers) {
  // Each of four members required or not, with and without others: exactly the subsets that hold the required
  // ones.
  for (int required = 0; required < 16; ++required) {
    for (const bool others : {false, true}) {
      Json schema = {{"type", "object"}, {"additionalProperties", others}};
      for (int k = 0; k < 4; ++k) {
        schema["properties"][std::string(1, static_cast<char>('a' + k))] = {{"type", "null"}};
        if (required >> k & 1) schema["required"].push_back(std::string(1, static_cast<char>('a' + k)));
      }
      const auto grammar = compile(schema.dump());
      ASSERT_NE(grammar, nullptr);
      for (int present = 0; present < 32; ++present) {
        std::string text;
        for (int k = 0; k < 5; ++k)
          if (present >> k & 1)
            text += std::string(text.empty() ? "" : ",") + "\"" + static_cast<char>('a' + k) + "\":null";
        const bool right = (present & required) == required && (present < 16 || others);
        EXPECT_EQ(takes(*grammar, "{" + text + "}"), right) << schema << text;
      }
    }
  }
}

TEST(JsonSchema, Arrays) {
  check(R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
        {"[1]", "[1,2,3]", "[1, 2]"}, {"[]", "[1,2,3,4]", "[\"a\"]"});
  check(R"({"type":"array","items":false})", {"[]"}, {"[1]"});
  check(R"({"type":"array","maxItems":0})", {"[]", "[\n]"}, {"[1]"});
  check(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"null"}],"items":{"type":"boolean"}})",
        {"[]", "[1]", "[1,null]", "[1,null,true,false]"}, {"[null]", "[1,true]", "[1,null,1]"});
  check(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"null"}],"items":false,"minItems":2})",
        {"[1,null]"}, {"[]", "[1]", "[1,null,1]"});
  check(
      R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"null"},"minItems":3,"maxItems":4})",
      {"[1,null,null]", "[1,null,null,null]"}, {"[1,null]", "[1,null,null,null,null]"});
  EXPECT_NE(refusal(R"({"type":"array","minItems":3,"maxItems":2})").find("no value"), std::string::npos);
  EXPECT_NE(refusal(R"({"items":[{}]})").find("#/items"), std::string::npos);
  EXPECT_NE(refusal(R"({"uniqueItems":true})").find("#/uniqueItems"), std::string::npos);
}

TEST(JsonSchema, Strings) {
  check(R"({"type":"string","minLength":2,"maxLength":3})",
        {"\"ab\"", "\"\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\"", R"("\ud83d\ude00\n")"},
        {"\"a\"", "\"abcd\"", R"("\ud83d\ude00")"});
  check(R"({"type":"string","pattern":"^[a-c]{2}\\d$"})", {"\"ab1\""}, {"\"ab\"", "\"xab1\"", "\"ab12\""});
  check(R"({"type":"string","pattern":"b+"})", {"\"abc\"", "\"b\"", "\"\\nb\\n\""}, {"\"ac\"", "\"\""});
  check(R"({"type":"string","pattern":"^a|b$"})", {"\"ax\"", "\"xb\""}, {"\"xa\"", "\"bx\""});
  check(R"({"type":"string","pattern":"^(?:a|bc)*?\"\\\\.$"})", {R"("abca\"\\x")"},
        {R"("abca\"\\")", R"("ab\"\\x")"});
  check(R"({"type":"string","pattern":"^\\u00e9[^x-z\\s]\\t$"})", {"\"\xC3\xA9w\\t\""},
        {"\"\xC3\xA9x\\t\"", "\"\xC3\xA9 \\t\""});
  check(R"({"type":"string","pattern":"^[a-z]+$","minLength":2,"maxLength":3})", {"\"ab\"", "\"abc\""},
        {"\"a\"", "\"abcd\""});
  check(R"({"type":"string","pattern":"^ab?$","maxLength":2})", {"\"a\"", "\"ab\""}, {"\"abb\""});
  for (const char* pattern : {"(?=a)", "(?!a)", "(?<=a)", "(a)\\\\1", "\\\\bx", "\\\\p{L}", "a**", "(", ")",
                              "[a", "a{2,1}", "x^", "a$b", "[z-a]", "*", "\\\\k<a>"})
    EXPECT_NE(refusal(std::string(R"({"type":"string","pattern":")") + pattern + "\"}").find("#/pattern"),
              std::string::npos)
        << pattern << refusal(std::string(R"({"pattern":")") + pattern + "\"}");
  EXPECT_NE(refusal(R"({"pattern":"ab","minLength":5})").find("#/pattern"), std::string::npos);
  EXPECT_NE(refusal(R"({"type":"string","minLength":3,"maxLength":2})").find("no value"), std::string::npos);
}

TEST(JsonSchema, Formats) {
  const auto format = [](const char* name) {
    return std::string(R"({"type":"string","format":")") + name + "\"}";
  };
  check(format("date"), {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\""},
        {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"2024-13-01\"", "\"2024-00-10\"",
         "\"24-01-01\""});
  check(format("time"), {"\"23:59:59Z\"", "\"00:00:00.5+09:00\""},
        {"\"24:00:00Z\"", "\"12:00\"", "\"12:00:60Z\""});
  check(format("date-time"), {"\"2024-01-31T10:00:00Z\""}, {"\"2024-01-31 10:00:00Z\"", "\"2024-01-31\""});
  check(format("uuid"), {"\"123e4567-e89b-12d3-a456-426614174000\""},
        {"\"123e4567e89b12d3a456426614174000\""});
  check(format("ipv4"), {"\"0.0.0.0\"", "\"255.249.199.10\""},
        {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""});
  check(format("ipv6"),
        {"\"::\"", "\"::1\"", "\"1::\"", "\"2001:db8::8a2e:370:7334\"", "\"1:2:3:4:5:6:7:8\"",
         "\"1:2:3:4:5:6:7::\""},
        {"\"1:2:3:4:5:6:7\"", "\"1::2::3\"", "\":1\"", "\"1:2:3:4:5:6:7:8:9\"", "\"1:2:3:4::5:6:7:8\"",
         "\"12345::\""});
  check(format("hostname"), {"\"a.example.com\"", "\"x-y\""}, {"\"-a\"", "\"a..b\"", "\"a_b\""});
  check(format("email"), {"\"a.b@example.com\""}, {"\"a@\"", "\"a b@c.d\"", "\".a@b.c\""});
  check(format("uri"), {"\"https://example.com:80/a%20b?q=1#x\"", "\"http://a\""},
        {"\"example.com\"", "\"http://a/ b\"", "\"http://a/%2\""});
  EXPECT_NE(refusal(format("regex")).find("#/format"), std::string::npos);
  EXPECT_NE(refusal(R"({"format":"date","pattern":"a"})").find("#/format"), std::string::npos);
}

TEST(JsonSchema, IntegerRangesAreExact) {
  const auto bounds = [](int low, int high) {
    return fmt::format(R"({{"type":"integer","minimum":{},"maximum":{}}})", low, high);
  };
  for (const auto& [low, high] : std::vector<std::pair<int, int>>{{0, 0},
                                                                  {0, 9},
                                                                  {1, 10},
                                                                  {7, 123},
                                                                  {-5, 5},
                                                                  {-120, -7},
                                                                  {-1, 0},
                                                                  {99, 1001},
                                                                  {-1000, 250},
                                                                  {13, 13},
                                                                  {190, 210}}) {
    const auto grammar = compile(bounds(low, high));
    ASSERT_NE(grammar, nullptr);
    for (int value = -1210; value <= 1210; ++value)
      ASSERT_EQ(takes(*grammar, std::to_string(value)), low <= value && value <= high)
          << low << " " << value << " " << high;
    EXPECT_FALSE(takes(*grammar, "-0"));
  }
  check(R"({"type":"integer","exclusiveMinimum":2.5,"exclusiveMaximum":5})", {"3", "4"}, {"2", "5"});
  check(R"({"type":"integer","minimum":-2.5})", {"-2", "0", "999999999999999999"}, {"-3", "-10"});
  check(R"({"type":"integer","exclusiveMinimum":0})", {"1", "10"}, {"0", "-1"});
  EXPECT_NE(refusal(bounds(5, 3)).find("no value"), std::string::npos);
  EXPECT_NE(refusal(R"({"type":"integer","minimum":1e30})").find("#/minimum"), std::string::npos);
  EXPECT_NE(refusal(R"({"type":"integer","minimum":99999999999999999999})").find("64 bits"),
            std::string::npos);
}

TEST(JsonSchema, NumberRangesAreExact) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{0, 1},
                                                                        {-1, 1},
                                                                        {0.05, 0.5},
                                                                        {0.25, 0.25},
                                                                        {-2.75, -1.5},
                                                                        {1.1, 12.34},
                                                                        {-0.01, 0.005},
                                                                        {0.123, 0.13},
                                                                        {3, 3.5}}) {
    for (const bool exclusive : {false, true}) {
      if (exclusive && low == high) continue;
      const char* names[] = {exclusive ? "exclusiveMinimum" : "minimum",
                             exclusive ? "exclusiveMaximum" : "maximum"};
      const auto grammar =
          compile(fmt::format(R"({{"type":"number","{}":{},"{}":{}}})", names[0], low, names[1], high));
      ASSERT_NE(grammar, nullptr);
      for (int thousandths = -3000; thousandths <= 13000; ++thousandths) {
        // All close to the bounds, some of the others.
        const double away = std::min(std::abs(thousandths - 1000 * low), std::abs(thousandths - 1000 * high));
        if (away > 12 && thousandths % 13 != 0) continue;
        const std::string text = fmt::format("{}{}.{:03}", thousandths < 0 ? "-" : "",
                                             std::abs(thousandths) / 1000, std::abs(thousandths) % 1000);
        const double value = std::stod(text);
        const bool inside = exclusive ? low < value && value < high : low <= value && value <= high;
        ASSERT_EQ(takes(*grammar, text), inside) << low << " " << text << " " << high << exclusive;
      }
      for (int whole = -4; whole <= 14; ++whole) {
        const bool inside = exclusive ? low < whole && whole < high : low <= whole && whole <= high;
        EXPECT_EQ(takes(*grammar, std::to_string(whole)), inside) << low << " " << whole << " " << high;
      }
    }
  }
  check(R"({"type":"number","minimum":0})", {"0", "0.0001", "123456789012345678.5"}, {"-1", "-0.1", "1e5"});
  EXPECT_NE(refusal(R"({"type":"number","multipleOf":0.5})").find("#/multipleOf"), std::string::npos);
}

TEST(JsonSchema, Combinations) {
  check(R"({"anyOf":[{"type":"integer","minimum":3},{"type":"string"}]})", {"3", "\"\""}, {"2", "null"});
  check(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],
            "anyOf":[{"properties":{"a":{"maximum":3}}},{"required":["b"]}]})",
        {R"({"a":3})", R"({"a":9,"b":1})"}, {R"({"a":4})"});
  check(R"({"oneOf":[{"type":"integer"},{"type":"string"}]})", {"1", "\"\""}, {"null"});
  check(
      R"({"oneOf":[{"properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k"],"type":"object"},
                     {"properties":{"k":{"enum":["b"]}},"required":["k"],"type":"object"}]})",
      {R"({"k":"a","x":1})", R"({"k":"b","x":null})"}, {R"({"k":"a","x":null})", R"({"k":"c"})"});
  EXPECT_NE(refusal(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})").find("#/oneOf"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"oneOf":[{"const":{"a":1,"b":2}},{"const":{"b":2,"a":1}}]})").find("#/oneOf"),
            std::string::npos);
  check(R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
                     {"properties":{"b":{"type":"null"}},"required":["b"],
           "additionalProperties":{"minimum":5}}]})",
        {R"({"a":5,"b":null})"}, {R"({"a":4,"b":null})", R"({"a":5})"});
  check(R"({"$ref":"#/$defs/n","maximum":5,"$defs":{"n":{"type":"integer","minimum":2}}})", {"2", "5"},
        {"1", "6"});
  for (const char* keyword :
       {"not", "if", "contains", "propertyNames", "unevaluatedProperties", "dependentRequired", "$anchor",
        "minProperties", "multipleOf", "nullable", "maxContains", "$dynamicRef"})
    EXPECT_NE(
        refusal(fmt::format(R"({{"items":{{"{}":{{}}}}}})", keyword)).find(std::string("#/items/") + keyword),
        std::string::npos);
}

TEST(JsonSchema, References) {
  check(R"({"$ref":"#/definitions/a~1b","definitions":{"a/b":{"type":"null"}}})", {"null"}, {"1"});
  const char* tree =
      R"({"type":"object","properties":{"v":{"type":"integer"},"c":{"type":"array","items":{"$ref":"#"}}},
                         "required":["v"],"additionalProperties":false})";
  check(tree, {R"({"v":1})", R"({"v":1,"c":[{"v":2,"c":[]},{"v":3}]})"}, {R"({"v":1,"c":[{}]})"});
  check(
      R"({"$ref":"#/$defs/l","$defs":{"l":{"anyOf":[{"type":"null"},{"type":"object",
           "properties":{"n":{"$ref":"#/$defs/l"}},
            "required":["n"],"additionalProperties":false}]}}})",
      {"null", R"({"n":{"n":null}})"}, {R"({"n":{}})"});
  EXPECT_NE(refusal(R"({"$ref":"#/$defs/x"})").find("#/$ref"), std::string::npos);
  EXPECT_NE(refusal(R"({"$ref":"http://x/y"})").find("#/$ref"), std::string::npos);
  EXPECT_NE(refusal(R"({"$ref":"#"})").find("refers to itself"), std::string::npos);
  EXPECT_NE(refusal(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})").find("refers"), std::string::npos);
  EXPECT_NE(
      refusal(
          R"({"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},
           "b":{"$ref":"#/$defs/a"}}})")
          .find("refers to itself"),
      std::string::npos);
  // No value is finite.
  const auto endless =
      json_schema_gbnf(R"({"type":"object","properties":{"n":{"$ref":"#"}},"required":["n"]})");
  ASSERT_TRUE(endless.ok());
  EXPECT_FALSE(compile_gbnf(*endless, test_vocabulary()).ok());
}

TEST(JsonSchema, WalksEndInValidValues) {
  walk(
      R"({"type":"object","properties":{"name":{"type":"string","maxLength":5},"id":{"type":"integer",
           "minimum":-3,"maximum":120},
           "tags":{"type":"array","items":{"enum":["x","y",1,null]},"maxItems":3}},"required":["id"]})");
  walk(R"({"type":"object","properties":{"a":{"type":"number","minimum":0.5,"maximum":10}},"required":["a"],
           "additionalProperties":{"type":["string","null"]}})");
  walk(R"({"type":"array","prefixItems":[{"type":"string","pattern":"^[a-f0-9]{2,4}$"},{"type":"boolean"}],
           "items":{"type":"object","properties":{"z":{"const":7}},"additionalProperties":false},
           "minItems":1})");
  walk(R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"string","minLength":1,"maxLength":2},
           "next":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/node"}]}},"required":["v","next"],
           "additionalProperties":false}},
           "$ref":"#/$defs/node"})");
  walk(
      R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer","minimum":1}}},
           {"properties":{"a":{"maximum":99},
           "b":{"type":"string","pattern":"[x0-9]"}},"required":["b"]}]})");
  walk(R"({"minLength":1,"maxLength":4,"minimum":10,"maximum":12.5,"maxItems":1,"required":["q"]})");
}

TEST(JsonSchema, BombsAreRefused) {
  std::string nested = "{}";
  for (int k = 0; k < 5000; ++k) nested = "{\"items\":" + nested + "}";
  EXPECT_NE(refusal(nested).find("deeper"), std::string::npos);
  EXPECT_NE(refusal(std::string(100'000, '[')).find("deeper"), std::string::npos);
  EXPECT_NE(refusal(std::string(2 << 20, ' ')).find("bytes"), std::string::npos);
  EXPECT_NE(refusal("{").find("schema"), std::string::npos);
  EXPECT_NE(refusal("{\"a\":\"\xFF\"}").find("schema"), std::string::npos);
  std::string many = "{\"properties\":{\"x\":{}";
  for (int k = 0; k < 50'000; ++k) many += fmt::format(",\"k{}\":{{}}", k);
  EXPECT_NE(refusal(many + "}}").find("members"), std::string::npos);
  // Every combination of twenty choices of three.
  std::string choices;
  for (int k = 0; k < 20; ++k)
    choices += fmt::format(
        "{0}{{\"anyOf\":[{{\"minimum\":{1}}},{{\"maxLength\":{1}}},{{\"minItems\":{1}}}]}}", k ? "," : "", k);
  EXPECT_NE(refusal("{\"allOf\":[" + choices + "]}"), "accepted");
  // References that double at each step.
  std::string doubling = "{\"$ref\":\"#/$defs/d0\",\"$defs\":{\"d60\":{\"type\":\"null\"}";
  for (int k = 0; k < 60; ++k)
    doubling += fmt::format(
        ",\"d{0}\":{{\"type\":\"array\",\"prefixItems\":[{{\"$ref\":\"#/$defs/d{1}\"}},{{\"$ref\":\"#/$defs/"
        "d{1}\"}}]}}",
        k, k + 1);
  EXPECT_EQ(refusal(doubling + "}}"), "accepted");  // shared, so small
  ASSERT_NE(compile(doubling + "}}"), nullptr);
  const auto large = json_schema_gbnf(
      R"({"type":"array","items":{"type":"array","items":{"type":"string","minLength":60000},
           "minItems":60000},"minItems":60000})");
  ASSERT_TRUE(large.ok());
  EXPECT_FALSE(compile_gbnf(*large, test_vocabulary()).ok());
}

TEST(JsonSchema, SeveralInOneGrammar) {
  auto one = json_schema_gbnf(R"({"type":"integer"})", "a");
  auto two = json_schema_gbnf(R"({"type":"array","items":{"type":"null"}})", "b-args");
  ASSERT_TRUE(one.ok() && two.ok());
  auto grammar = compile_gbnf("root ::= " + gbnf_literal("x\n\"\\\xFF") + " a | b-args\n" + *one + *two,
                              test_vocabulary());
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_TRUE(takes(**grammar,
                    "x\n\"\\\xFF"
                    "12"));
  EXPECT_TRUE(takes(**grammar, "[null, null]"));
  EXPECT_FALSE(takes(**grammar, "12"));
}

}  // namespace
}  // namespace fathom
