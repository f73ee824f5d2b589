#include "text/chat_value.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json_depth.h"

namespace fathom {
namespace {

std::string python(std::string_view json) {
  auto value = parse_json_value(json, "test");
  return value.ok() ? write_python_json(*value) : "error: " + value.error().message;
}

TEST(ChatValue, WritesNumbersAsPythonDoes) {
  // Right sides are what Python 3.11's json.dumps(json.loads(...)) prints.
  EXPECT_EQ(python("[1.0, 1e5, 1e15, 1e16, 1.5e-7, 0.0001, 0.00001, -0.0, 123456789.123]"),
            "[1.0, 100000.0, 1000000000000000.0, 1e+16, 1.5e-07, 0.0001, 1e-05, -0.0, 123456789.123]");
  EXPECT_EQ(python("[0.1, 5e-324, 1.7976931348623157e308, 2E3]"),
            "[0.1, 5e-324, 1.7976931348623157e+308, 2000.0]");
  EXPECT_EQ(python("[0, -7, 18446744073709551615, -9223372036854775808]"),
            "[0, -7, 18446744073709551615, -9223372036854775808]");
  EXPECT_EQ(python("123456789012345678901234567890"), "123456789012345678901234567890");
}

TEST(ChatValue, KeepsOrderAndSpacing) {
  EXPECT_EQ(python(R"({"z":1,"a":[true,false,null],"m":{}})"),
            R"({"z": 1, "a": [true, false, null], "m": {}})");
  EXPECT_EQ(python(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
  EXPECT_EQ(python("[ ]"), "[]");
}

TEST(ChatValue, EscapesOnlyWhatPythonEscapes) {
  EXPECT_EQ(python(R"("\u00e9\u65e5\/\u007f")"), "\"\u00e9\u65e5/\x7f\"");
  EXPECT_EQ(python(R"("\"\\\n\r\t\b\f\u0001\u001f")"), R"("\"\\\n\r\t\b\f\u0001\u001f")");
}

TEST(ChatValue, RefusesWhatIsNotJson) {
  EXPECT_NE(python("{").find("test: expected JSON, found parse error"), std::string::npos) << python("{");
  EXPECT_TRUE(python("\"\xFF\"").starts_with("error"));
  EXPECT_TRUE(python("").starts_with("error"));
  EXPECT_TRUE(python("1 2").starts_with("error"));
  EXPECT_TRUE(python("1e999").starts_with("error"));
  const std::string deep(kJsonDepthMax + 1, '[');
  EXPECT_NE(python(deep).find("nested deeper than 512"), std::string::npos);
  EXPECT_FALSE(
      python(std::string(kJsonDepthMax, '[') + std::string(kJsonDepthMax, ']')).starts_with("error"));
  std::string wide = R"({"0": 0)";
  for (size_t member = 1; member < kJsonMembersMax; ++member) wide += fmt::format(", \"{}\": 0", member);
  EXPECT_FALSE(python(wide + "}").starts_with("error"));
  EXPECT_NE(python(wide + R"(, "x": 0})").find("more than 4096 members"), std::string::npos);
}

}  // namespace
}  // namespace fathom
