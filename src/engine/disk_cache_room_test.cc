// What makes room in the prefix cache, several caches on one folder, and processes that are killed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/log.h"
#include "engine/disk_cache.h"
#include "engine/disk_cache_file.h"
#include "engine/disk_cache_test_data.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
using disk_cache_test::joined;
using disk_cache_test::owner;
using disk_cache_test::run_of;
using disk_cache_test::state_of;

constexpr int64_t kForever = 600'000;

class DiskCacheRoom : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / (std::string("disk_cache_") + std::to_string(::getpid()) +
                                              testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    options_ = {.folder = folder_.string(), .owner = owner(), .rewind_tokens = 4};
    options_.now_ms = [this] { return now_ms_.load(); };
  }
  void TearDown() override {
    cache_.reset();
    fs::remove_all(folder_);
  }
  std::unique_ptr<DiskCache> opened() {
    auto cache = DiskCache::open(options_);
    EXPECT_TRUE(cache.ok()) << cache.error().message;
    return cache.ok() ? std::move(*cache) : nullptr;
  }
  // Entries of one length are of one size: `count` of them fit.
  void open_for(int64_t count, size_t tokens = 20) {
    const auto bytes = disk_cache_file_bytes(state_of(std::vector<int32_t>(tokens), true));
    options_.bytes_max = count * bytes + bytes / 2;
    cache_.reset();
    cache_ = opened();
  }
  void put(const std::vector<int32_t>& tokens) {
    ASSERT_EQ(cache_->put(state_of(tokens, true)), DiskCachePut::kQueued);
    ASSERT_TRUE(cache_->flush(kForever));
    now_ms_ += 1000;
    int64_t on_disk = 0;
    for (const auto& file : fs::directory_iterator(folder_)) on_disk += static_cast<int64_t>(file.file_size());
    EXPECT_LE(on_disk, options_.bytes_max);
    EXPECT_EQ(on_disk, cache_->statistics().bytes);
  }
  void use(const std::vector<int32_t>& tokens) {
    const auto match = cache_->find(tokens);
    ASSERT_TRUE(match);
    ASSERT_TRUE(cache_->load(*match, tokens).ok());
    ASSERT_TRUE(cache_->flush(kForever));
    now_ms_ += 1000;
  }
  bool has(const std::vector<int32_t>& tokens) {
    const auto match = cache_->find(joined(tokens, {999}));
    return match && match->common_tokens == std::ssize(tokens) && match->entry_tokens == std::ssize(tokens);
  }

  fs::path folder_;
  DiskCacheOptions options_;
  std::atomic<int64_t> now_ms_ = 1'000'000'000'000;
  std::unique_ptr<DiskCache> cache_;
};

TEST_F(DiskCacheRoom, TheLeastRecentlyUsedGoesFirst) {
  open_for(3);
  for (const int line : {1, 2, 3}) put(run_of(line, 20));
  use(run_of(1, 20));
  put(run_of(4, 20));
  EXPECT_TRUE(has(run_of(1, 20)) && !has(run_of(2, 20)) && has(run_of(3, 20)) && has(run_of(4, 20)));
  EXPECT_EQ(cache_->statistics().evictions, 1);
}

TEST_F(DiskCacheRoom, HitsOutweighAFewHoursAlsoAfterARestart) {
  open_for(2);
  put(run_of(1, 20));
  for (int hit = 0; hit < 7; ++hit) use(run_of(1, 20));
  put(run_of(2, 20));
  open_for(2);
  now_ms_ += int64_t{24} * 3600 * 1000;
  put(run_of(3, 20));
  EXPECT_TRUE(has(run_of(1, 20)) && !has(run_of(2, 20)));
  // ... but not for ever.
  now_ms_ += int64_t{30} * 24 * 3600 * 1000;
  put(run_of(4, 20));
  now_ms_ += int64_t{30} * 24 * 3600 * 1000;
  put(run_of(5, 20));
  EXPECT_FALSE(has(run_of(1, 20)));
}

TEST_F(DiskCacheRoom, UsesThatTheRamServedCountToo) {
  open_for(2);
  put(run_of(1, 20));
  put(run_of(2, 20));
  cache_->note_use(run_of(1, 20));
  cache_->note_use(run_of(9, 20));
  put(run_of(3, 20));
  EXPECT_TRUE(has(run_of(1, 20)) && !has(run_of(2, 20)));
  EXPECT_EQ(cache_->statistics().hits, 0);
}

TEST_F(DiskCacheRoom, OtherVersionsOfTheFormatAreToldAndGoFirst) {
  std::vector<std::string> log;
  set_log_sink([&log](LogLevel, std::string_view line) {
    if (line.find("other versions") != std::string_view::npos) log.emplace_back(line);
  });
  open_for(4);
  EXPECT_EQ(log.size(), 0u);
  for (const int line : {1, 2, 3, 4}) put(run_of(line, 20));
  cache_.reset();
  // Two are of another version, used last of all: the header's byte 8.
  int64_t bytes = 0;
  for (const int line : {3, 4}) {
    PrefixHasher hasher(disk_cache_pack(options_.owner, options_.rewind_tokens));
    hasher.take(run_of(line, 20));
    const fs::path path = folder_ / disk_cache_file_name(hasher.key());
    bytes += static_cast<int64_t>(fs::file_size(path));
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(8).put('\7');
  }
  cache_ = opened();
  set_log_sink({});
  ASSERT_EQ(log.size(), 1u);
  EXPECT_NE(log[0].find(fmt::format("2 of the entries, {} bytes", bytes)), std::string::npos) << log[0];
  EXPECT_EQ(cache_->statistics().entries, 4);

  put(run_of(5, 20));
  put(run_of(6, 20));
  EXPECT_EQ(cache_->statistics().evictions, 2);
  for (const int line : {1, 2, 5, 6}) EXPECT_TRUE(has(run_of(line, 20))) << line;
  put(run_of(7, 20));
  EXPECT_FALSE(has(run_of(1, 20)));
}

TEST_F(DiskCacheRoom, FewTokensForTheirBytesGoBeforeMany) {
  // With the fixed part of a state the shorter one is the dearer one for each token.
  options_.bytes_max = disk_cache_file_bytes(state_of(run_of(1, 200), true)) +
                       disk_cache_file_bytes(state_of(run_of(2, 20), true)) + 100;
  cache_ = opened();
  put(run_of(1, 200));
  put(run_of(2, 20));
  put(run_of(3, 20));
  EXPECT_TRUE(has(run_of(1, 200)) && !has(run_of(2, 20)) && has(run_of(3, 20))) << "although used longest ago";
}

TEST_F(DiskCacheRoom, WhatAConversationHasLeftBehindGoesFirst) {
  open_for(3, 60);
  put(run_of(1, 40));
  put(run_of(2, 60));
  now_ms_ += 3600 * 1000;
  put(run_of(1, 50));
  put(run_of(3, 60));
  EXPECT_TRUE(!has(run_of(1, 40)) && has(run_of(1, 50)) && has(run_of(2, 60)) && has(run_of(3, 60)));
}

TEST_F(DiskCacheRoom, SharedAnchorsStay) {
  open_for(4, 60);
  const std::vector<int32_t> anchor = run_of(1, 57);
  put(anchor);
  put(joined(anchor, {500, 1}));
  put(joined(anchor, {501, 1}));
  put(joined(anchor, {501, 1, 2}));
  put(run_of(7, 60));
  EXPECT_TRUE(has(anchor)) << "two conversations went on from it";
  EXPECT_FALSE(has(joined(anchor, {501, 1}))) << "one has moved on from there";
  // The same by hits: the second conversation comes while the first goes on alone.
  open_for(3, 60);
  const std::vector<int32_t> other = run_of(20, 57);
  put(other);
  use(joined(other, {600}));
  use(joined(other, {601}));
  put(joined(other, {600, 1}));
  put(run_of(8, 60));
  EXPECT_TRUE(has(other));
}

TEST_F(DiskCacheRoom, WhatAWaitingPromptNeedsIsNeverEvicted) {
  open_for(1);
  put(run_of(1, 20));
  {
    const auto protection = cache_->protect(joined(run_of(1, 20), {5, 5, 5}));
    put(run_of(2, 20));
    EXPECT_TRUE(has(run_of(1, 20)) && !has(run_of(2, 20)));
    EXPECT_EQ(cache_->statistics().refused, 1);
    EXPECT_EQ(cache_->statistics().evictions, 0);
  }
  put(run_of(2, 20));
  EXPECT_TRUE(!has(run_of(1, 20)) && has(run_of(2, 20)));
}

TEST_F(DiskCacheRoom, TwoConversationsInTurnsKeepWhatTheyNeed) {
  open_for(3, 60);
  put(run_of(1, 40));
  put(run_of(1, 50));
  put(run_of(2, 60));
  const auto protection = cache_->protect(run_of(1, 60));
  put(run_of(3, 60));
  EXPECT_TRUE(has(run_of(1, 40)) && has(run_of(1, 50)) && !has(run_of(2, 60))) << "others go before its prefixes";
  put(joined(run_of(3, 30), run_of(4, 30)));
  put(run_of(5, 60));
  EXPECT_TRUE(has(run_of(1, 50)));
  const auto second = cache_->protect(run_of(5, 60));
  put(run_of(1, 58));
  EXPECT_TRUE(has(run_of(1, 58)) && has(run_of(5, 60)));
}

TEST_F(DiskCacheRoom, ASmallerSizeIsKeptFromTheStart) {
  open_for(4);
  for (const int line : {1, 2, 3, 4}) put(run_of(line, 20));
  open_for(2);
  EXPECT_EQ(cache_->statistics().entries, 2);
  EXPECT_TRUE(has(run_of(3, 20)) && has(run_of(4, 20)));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);
  EXPECT_EQ(cache_->put(state_of(run_of(1, 2000), true)), DiskCachePut::kTooLarge);
}

// ---- Several on one folder ----

TEST_F(DiskCacheRoom, OneFolderForTwo) {
  open_for(2);
  const auto other = opened();
  put(run_of(1, 20));
  EXPECT_FALSE(other->find(run_of(1, 20))) << "seen with its own next write";
  ASSERT_EQ(other->put(state_of(run_of(2, 20), true)), DiskCachePut::kQueued);
  ASSERT_TRUE(other->flush(kForever));
  const auto match = other->find(run_of(1, 20));
  ASSERT_TRUE(match);
  EXPECT_TRUE(other->load(*match, run_of(1, 20)).ok());
  put(run_of(3, 20));
  EXPECT_EQ(cache_->statistics().entries, 2) << "the size is of the folder";
  EXPECT_TRUE(!has(run_of(2, 20)) || !has(run_of(1, 20)));
  const bool first_left = has(run_of(1, 20));
  const std::vector<int32_t> gone = run_of(first_left ? 2 : 1, 20);
  const auto stale = other->find(gone);
  ASSERT_TRUE(stale);
  EXPECT_EQ(other->load(*stale, gone).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(other->find(gone));
  EXPECT_EQ(other->statistics().dropped, 0);
}

// Everything at once from many threads, in a folder that holds a fraction: what loads is right.
TEST_F(DiskCacheRoom, ThreadsAndCachesTogether) {
  open_for(6);
  const auto second = opened();
  std::atomic<int64_t> loaded = 0, wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned which = 0; which < 4; ++which)
    threads.emplace_back([&, which] {
      std::mt19937 random(which);
      DiskCache& cache = which % 2 == 0 ? *cache_ : *second;
      for (int round = 0; round < 60; ++round) {
        const std::vector<int32_t> prompt = run_of(static_cast<int32_t>(random() % 12), 20);
        const auto protection = cache.protect(prompt);
        if (const auto match = cache.find(prompt); match) {
          const auto saved = cache.load(*match, prompt);
          if (saved.ok()) ++loaded;
          if (saved.ok() ? saved->state != state_of(prompt, true).state
                         : saved.error().code != ErrorCode::kNotFound)
            ++wrong;
        } else {
          (void)cache.put(state_of(prompt, true));
        }
        if (random() % 8 == 0) cache.note_use(prompt);
        if (random() % 16 == 0) (void)cache.flush(kForever);
        (void)cache.statistics();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(cache_->flush(kForever) && second->flush(kForever));
  EXPECT_GT(loaded, 0);
  EXPECT_EQ(cache_->statistics().dropped + second->statistics().dropped, 0);
}

// ---- Killed at any moment ----

// Writes, evicts and loads without end, and says so with a byte a round.
[[noreturn]] void write_until_killed(const DiskCacheOptions& options, int pipe_end, unsigned seed) {
  auto cache = DiskCache::open(options);
  if (!cache.ok()) ::_exit(1);
  std::mt19937 random(seed);
  while (true) {
    const std::vector<int32_t> prompt = run_of(static_cast<int32_t>(random() % 20), 10 + random() % 40);
    (void)(*cache)->put(state_of(prompt, true, 60'000));
    if (const auto match = (*cache)->find(prompt); match) (void)(*cache)->load(*match, prompt);
    if (random() % 2 == 0) (void)(*cache)->flush(kForever);
    const char byte = 1;
    if (::write(pipe_end, &byte, 1) != 1) ::_exit(1);
  }
}

TEST_F(DiskCacheRoom, KilledAtAnyMomentEveryEntryIsRight) {
  options_.now_ms = nullptr;
  options_.bytes_max = 700'000;  // about ten entries
  std::mt19937 random(3);
  int64_t seen = 0;
  for (unsigned round = 0; round < 25; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(ends[0]);
      write_until_killed(options_, ends[1], round);
    }
    ::close(ends[1]);
    for (unsigned wait = random() % 25; wait > 0; --wait) {
      char byte;
      ASSERT_EQ(::read(ends[0], &byte, 1), 1);
    }
    ::usleep(static_cast<useconds_t>(random() % 3000));  // anywhere inside of a round
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ::close(ends[0]);

    cache_ = opened();
    ASSERT_TRUE(cache_);
    EXPECT_EQ(cache_->statistics().dropped, 0) << "no file is ever half there";
    EXPECT_LE(cache_->statistics().bytes, options_.bytes_max);
    int64_t found = 0;
    for (int32_t line = 0; line < 20; ++line)
      for (size_t tokens = 10; tokens < 50; ++tokens) {
        const std::vector<int32_t> prompt = run_of(line, tokens);
        const auto match = cache_->find(prompt);
        if (!match || match->entry_tokens != std::ssize(prompt)) continue;
        const auto saved = cache_->load(*match, prompt);
        ASSERT_TRUE(saved.ok()) << saved.error().message;
        EXPECT_EQ(saved->tokens, prompt);
        EXPECT_EQ(saved->state, state_of(prompt, true, 60'000).state);
        ++found;
      }
    EXPECT_EQ(found, cache_->statistics().entries) << "all are offered";
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), found) << "and nothing else lies about";
    seen += found;
    cache_.reset();
  }
  EXPECT_GT(seen, 25);
}

}  // namespace
}  // namespace fathom
