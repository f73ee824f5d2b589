#include "server/responses_store.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

TEST(ResponseStore, KeepsWhatWasUsedLast) {
  ResponseStore store(100, 3);
  for (const char* id : {"a", "b", "c"}) store.put(id, {"response", "[]"});
  EXPECT_NE(store.get("a"), nullptr);
  store.put("d", {"response", "[]"});  // pushes out b, which was used longest ago
  EXPECT_EQ(store.get("b"), nullptr);
  EXPECT_EQ(store.get("a")->response, "response");
  EXPECT_EQ(store.count(), 3U);
}

TEST(ResponseStore, StaysWithinItsBytes) {
  ResponseStore store(100, 1000);
  for (int response = 0; response < 50; ++response) store.put(std::to_string(response), {std::string(30, 'x'),
      "[]"});
  EXPECT_EQ(store.count(), 2U);
  EXPECT_EQ(store.bytes(), 2U * 34);
  EXPECT_NE(store.get("49"), nullptr);
  store.put("too large", {std::string(200, 'x'), ""});
  EXPECT_EQ(store.get("too large"), nullptr);
  EXPECT_EQ(store.count(), 2U);
}

TEST(ResponseStore, ReplacesAndErases) {
  ResponseStore store;
  store.put("a", {"1", "[]"});
  const auto held = store.get("a");
  store.put("a", {"22", "[]"});
  EXPECT_EQ(store.bytes(), 5U);
  EXPECT_EQ(held->response, "1");  // whoever reads it keeps it
  EXPECT_TRUE(store.erase("a"));
  EXPECT_FALSE(store.erase("a"));
  EXPECT_EQ(store.get("a"), nullptr);
  EXPECT_EQ(store.bytes(), 0U);
}

}  // namespace
}  // namespace fathom
