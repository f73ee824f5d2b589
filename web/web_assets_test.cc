#include "server/web_assets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>

namespace fathom {
namespace {

const WebAsset* find(std::string_view path) {
  for (const WebAsset& asset : web_assets()) {
    if (asset.path == path) return &asset;
  }
  return nullptr;
}

TEST(WebAssets, RootIsAlwaysThereAndPathsAreSorted) {
  const WebAsset* root = find("/");
  ASSERT_NE(root, nullptr);
  EXPECT_FALSE(root->bytes.empty());
  EXPECT_FALSE(root->immutable);
  EXPECT_TRUE(std::is_sorted(web_assets().begin(), web_assets().end(),
                             [](const WebAsset& a, const WebAsset& b) { return a.path < b.path; }));
}

TEST(WebAssets, WithoutThePageRootSaysSo) {
  if (web_page_built()) GTEST_SKIP() << "the page was built";
  EXPECT_EQ(web_assets().size(), 1u);
  EXPECT_EQ(find("/")->content_type, "text/plain; charset=utf-8");
  EXPECT_NE(find("/")->bytes.find("without its chat page"), std::string_view::npos);
}

TEST(WebAssets, ThePageIsAFewSmallFilesNamedByContent) {
  if (!web_page_built()) GTEST_SKIP() << "the page was not built";
  const std::regex hashed("/assets/[a-z]+-[A-Za-z0-9_-]{8}\\.(js|css|svg)");
  size_t total_bytes = 0;
  for (const WebAsset& asset : web_assets()) {
    total_bytes += asset.bytes.size();
    if (asset.path == "/") continue;
    EXPECT_TRUE(asset.immutable) << asset.path;
    EXPECT_TRUE(std::regex_match(std::string(asset.path), hashed)) << asset.path;
  }
  EXPECT_EQ(web_assets().size(), 4u);
  EXPECT_LT(total_bytes, 250'000u);
}

// What the document names must be there, and nothing may be inline or from elsewhere.
TEST(WebAssets, TheDocumentObeysTheContentPolicy) {
  if (!web_page_built()) GTEST_SKIP() << "the page was not built";
  const std::string html(find("/")->bytes);
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  const std::regex reference("(src|href)=\"([^\"]*)\"");
  int references = 0;
  for (auto it = std::sregex_iterator(html.begin(), html.end(), reference); it != std::sregex_iterator(); ++it) {
    const std::string target = (*it)[2];
    ASSERT_TRUE(target.starts_with("./")) << target;
    EXPECT_NE(find(target.substr(1)), nullptr) << target;
    references++;
  }
  EXPECT_EQ(references, 3);
  EXPECT_EQ(html.find("<style"), std::string::npos);
  EXPECT_FALSE(std::regex_search(html, std::regex("<script(?![^>]*src=)|\\son\\w+=|style=")));
}

TEST(WebAssets, TheContentPolicyAllowsNothingInlineOrFromElsewhere) {
  for (std::string_view forbidden : {"unsafe", "http", "*", "\n"}) {
    EXPECT_EQ(kWebContentSecurityPolicy.find(forbidden), std::string_view::npos) << forbidden;
  }
  for (std::string_view needed : {"default-src 'none'", "script-src 'self'", "connect-src 'self'",
                                  "img-src 'self' data: blob:", "frame-ancestors 'none'"}) {
    EXPECT_NE(kWebContentSecurityPolicy.find(needed), std::string_view::npos) << needed;
  }
}

}  // namespace
}  // namespace fathom
