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

}  // namespace
}  // namespace fathom
