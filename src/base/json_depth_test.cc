#include "base/json_depth.h"

#include <gtest/gtest.h>

#include <string>

namespace fathom {
namespace {

TEST(JsonDepth, CountsOpenArraysAndObjects) {
  EXPECT_FALSE(json_is_deeper_than("", 0));
  EXPECT_FALSE(json_is_deeper_than("5", 0));
  EXPECT_TRUE(json_is_deeper_than("[]", 0));
  EXPECT_FALSE(json_is_deeper_than(R"({"a": [1], "b": [{}, {}]})", 3));
  EXPECT_TRUE(json_is_deeper_than(R"({"a": [1], "b": [{}, {}]})", 2));
  EXPECT_TRUE(json_is_deeper_than(std::string(1000000, '['), 64));
}

TEST(JsonDepth, IgnoresBracketsInStrings) {
  EXPECT_FALSE(json_is_deeper_than(R"(["[[{{", "\"[[", "\\"])", 1));
  EXPECT_TRUE(json_is_deeper_than(R"(["\\", [1]])", 1));
}

TEST(JsonDepth, CountsTheMembersOfEachObject) {
  EXPECT_FALSE(json_is_wider_than("5", 0));
  EXPECT_FALSE(json_is_wider_than("[1, 2, 3]", 0));
  EXPECT_FALSE(json_is_wider_than(R"({"a": {"x": 1, "y": 2}, "b": {"z": 3}})", 2));
  EXPECT_TRUE(json_is_wider_than(R"({"a": {"x": 1, "y": 2}, "b": {"z": 3}})", 1));
  EXPECT_TRUE(json_is_wider_than(R"([{"a": {}, "b": [{"c": 1}], "d": 2}])", 2));
  EXPECT_FALSE(json_is_wider_than(R"({"a:b:c": "d:e"})", 1));
  EXPECT_FALSE(json_is_wider_than("]}::", 0));
}

}  // namespace
}  // namespace fathom
