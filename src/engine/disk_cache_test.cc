#include "engine/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "base/log.h"
#include "base/sha256.h"
#include "engine/disk_cache_file.h"
#include "engine/disk_cache_test_data.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
using disk_cache_test::joined;
using disk_cache_test::owner;
using disk_cache_test::run_of;
using disk_cache_test::state_of;

class DiskCacheFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / (std::string("disk_cache_") + std::to_string(::getpid()) +
                                              testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    options_ = {.folder = folder_.string(), .owner = owner(), .rewind_tokens = 4};
    options_.now_ms = [this] { return now_ms_.load(); };
    set_log_sink([this](LogLevel level, std::string_view line) {
      const std::lock_guard lock(log_mutex_);
      if (level != LogLevel::kInfo) log_.emplace_back(line);
    });
  }
  void TearDown() override {
    cache_.reset();
    set_log_sink({});
    fs::remove_all(folder_);
  }

  void reopen() {
    cache_.reset();
    auto opened = DiskCache::open(options_);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    cache_ = std::move(*opened);
  }
  void put(std::vector<int32_t> tokens, bool with_logits = true) {
    ASSERT_EQ(cache_->put(state_of(std::move(tokens), with_logits)), DiskCachePut::kQueued);
    ASSERT_TRUE(cache_->flush(600'000));
    now_ms_ += 1000;
  }
  // The tokens that a prompt gets from the disk; each time compared with what was put.
  int64_t reused(const std::vector<int32_t>& prompt) {
    const auto match = cache_->find(prompt);
    if (!match) return 0;
    const auto saved = cache_->load(*match, prompt);
    EXPECT_TRUE(saved.ok()) << saved.error().message;
    if (!saved.ok()) return -1;
    const SavedState expected = state_of(saved->tokens, !saved->logits.empty());
    EXPECT_EQ(saved->state, expected.state);
    EXPECT_EQ(saved->logits, expected.logits);
    return match->reused_tokens;
  }
  // Without counting as a use.
  bool has(const std::vector<int32_t>& tokens) {
    const auto match = cache_->find(joined(tokens, {999}));
    return match && match->common_tokens == std::ssize(tokens) && match->entry_tokens == std::ssize(tokens);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& file : fs::directory_iterator(folder_)) found.push_back(file.path());
    std::sort(found.begin(), found.end());
    return found;
  }
  static std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  std::vector<std::string> take_log() {
    const std::lock_guard lock(log_mutex_);
    return std::exchange(log_, {});
  }
  int64_t one_file_bytes(size_t tokens) const {
    return disk_cache_file_bytes(state_of(std::vector<int32_t>(tokens), true));
  }
  fs::path path_of(const std::vector<int32_t>& tokens) const {
    PrefixHasher hasher(disk_cache_pack(options_.owner, options_.rewind_tokens));
    hasher.take(tokens);
    return folder_ / disk_cache_file_name(hasher.key());
  }

  fs::path folder_;
  DiskCacheOptions options_;
  std::atomic<int64_t> now_ms_ = 1'000'000'000'000;
  std::mutex log_mutex_;
  std::vector<std::string> log_;
  std::unique_ptr<DiskCache> cache_;
};

TEST_F(DiskCacheFolder, SurvivesARestart) {
  reopen();
  put(run_of(1, 20));
  EXPECT_EQ(cache_->statistics().writes, 1);
  reopen();
  EXPECT_EQ(cache_->statistics().entries, 1);
  EXPECT_EQ(cache_->statistics().bytes, static_cast<int64_t>(fs::file_size(files()[0])));
  EXPECT_EQ(reused(joined(run_of(1, 20), run_of(7, 5))), 20);
  EXPECT_EQ(reused(run_of(2, 20)), 0);
  EXPECT_EQ(cache_->statistics().hits, 1);
  EXPECT_TRUE(take_log().empty());
}

// The page on the format says what is hashed; this is that page and not the code.
TEST_F(DiskCacheFolder, NamesAreHashesOfPackVersionAndTokens) {
  reopen();
  put({5, 6, 7});
  Sha256 pack;
  pack.update(std::as_bytes(std::span("fathom prefix cache")));  // with its zero
  pack.update(std::as_bytes(std::span(options_.owner.fingerprint)));
  const uint32_t words[2] = {0, 4};  // official numerics, rewind
  pack.update(std::as_bytes(std::span(words)));
  Sha256 name;
  const std::array<uint8_t, 32> pack_id = pack.finish();
  name.update(std::as_bytes(std::span(pack_id)));
  const int32_t rest[4] = {1, 5, 6, 7};  // version, tokens
  name.update(std::as_bytes(std::span(rest)));
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(files()[0].filename(), hex_string(name.finish()) + ".fathom-prefix");
  EXPECT_EQ(bytes_of(files()[0]).substr(0, 8), "FTHMPRFX");
  EXPECT_EQ(fs::status(files()[0]).permissions() & fs::perms::all, fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(DiskCacheFolder, WholePromptsNeedLogits) {
  reopen();
  put(run_of(1, 20), false);
  EXPECT_EQ(reused(run_of(1, 20)), 19) << "its last token must be evaluated for logits";
  put(run_of(1, 20), true);
  EXPECT_EQ(cache_->statistics().writes, 2) << "logits are worth a write";
  EXPECT_EQ(cache_->statistics().entries, 1);
  EXPECT_EQ(reused(run_of(1, 20)), 20);
  put(run_of(1, 20), false);
  put(run_of(1, 20), true);
  EXPECT_EQ(cache_->statistics().writes, 2) << "there already";
}

TEST_F(DiskCacheFolder, GoesBackAsFarAsAStateCan) {
  reopen();
  put(run_of(1, 20));
  for (size_t common = 1; common < 20; ++common) {
    std::vector<int32_t> prompt = run_of(1, common);
    prompt.push_back(998);
    EXPECT_EQ(reused(prompt), common >= 16 ? static_cast<int64_t>(common) : 0) << common;
    // The prompt ends inside of the entry: its last token must be evaluated.
    EXPECT_EQ(reused(run_of(1, common)), common >= 17 ? static_cast<int64_t>(common) - 1 : 0) << common;
  }
}

// Against the definition, with so few different tokens that prefixes abound.
TEST_F(DiskCacheFolder, FindsWhatTheDefinitionFinds) {
  std::mt19937 random(7);
  for (const int rewind : {0, 1, 4, 40}) {
    fs::remove_all(folder_);
    options_.rewind_tokens = rewind;
    reopen();
    std::vector<std::pair<std::vector<int32_t>, bool>> entries;
    const auto any = [&] {
      std::vector<int32_t> tokens(1 + random() % 12);
      for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 2);
      return tokens;
    };
    for (int entry = 0; entry < 25; ++entry) {
      entries.emplace_back(any(), random() % 2 == 0);
      ASSERT_EQ(cache_->put(state_of(entries.back().first, entries.back().second)), DiskCachePut::kQueued);
      ASSERT_TRUE(cache_->flush(600'000));
    }
    if (rewind == 1) reopen();
    for (int round = 0; round < 300; ++round) {
      const std::vector<int32_t> prompt = any();
      int64_t best = 0;
      for (const auto& [tokens, logits] : entries) {
        int64_t keep = std::mismatch(tokens.begin(), tokens.end(), prompt.begin(), prompt.end()).first -
                       tokens.begin();
        if (!(tokens == prompt && logits)) keep = std::min(keep, std::ssize(prompt) - 1);
        if (std::ssize(tokens) - keep <= rewind) best = std::max(best, keep);
      }
      ASSERT_EQ(reused(prompt), best) << "rewind " << rewind << " round " << round;
    }
  }
}

// ---- Files that are not what they should be ----

TEST_F(DiskCacheFolder, NoFlippedBitIsEverUsed) {
  const std::vector<int32_t> prompt = run_of(3, 30);
  reopen();
  put(prompt);
  const fs::path path = files()[0];
  const std::string whole = bytes_of(path);
  constexpr size_t kMagicEnd = 8, kVersionEnd = 12, kUsage = 160, kUsageEnd = 176;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    cache_.reset();
    write(path, damaged);
    take_log();
    reopen();
    if (at >= kUsage && at < kUsageEnd) {
      EXPECT_EQ(reused(prompt), 30) << "how often it was used changes nothing";
      continue;
    }
    if (const auto match = cache_->find(prompt); match) {
      const auto saved = cache_->load(*match, prompt);
      ASSERT_FALSE(saved.ok()) << "byte " << at;
      EXPECT_EQ(saved.error().code, ErrorCode::kBadPack) << saved.error().message;
    }
    EXPECT_FALSE(cache_->find(prompt)) << "byte " << at;
    const std::vector<std::string> log = take_log();
    if (at >= kMagicEnd && at < kVersionEnd) {
      EXPECT_TRUE(log.empty() && fs::exists(path)) << "another version's: not ours to judge";
      continue;
    }
    EXPECT_EQ(fs::exists(path), at < kMagicEnd) << "byte " << at;
    ASSERT_EQ(log.size(), 1u) << "byte " << at;
    EXPECT_NE(log[0].find(path.string()), std::string::npos) << log[0];
    EXPECT_EQ(cache_->statistics().dropped, at < kMagicEnd ? 0 : 1);
  }
}

TEST_F(DiskCacheFolder, TruncatedEntriesAreDeletedAtTheStart) {
  const std::vector<int32_t> prompt = run_of(3, 5);
  reopen();
  put(prompt);
  const fs::path path = files()[0];
  const std::string whole = bytes_of(path);
  for (size_t length = 0; length <= whole.size() + 1; ++length) {
    if (length == whole.size()) continue;
    cache_.reset();
    write(path, length < whole.size() ? whole.substr(0, length) : whole + "x");
    take_log();
    reopen();
    EXPECT_FALSE(cache_->find(prompt));
    EXPECT_FALSE(fs::exists(path)) << length;
    const std::vector<std::string> log = take_log();
    ASSERT_EQ(log.size(), 1u) << length;
    EXPECT_NE(log[0].find("truncated"), std::string::npos) << log[0];
  }
}

TEST_F(DiskCacheFolder, AnEntryUnderAnotherNameIsForeign) {
  reopen();
  put(run_of(1, 20));
  put(run_of(2, 20));
  cache_.reset();
  fs::copy_file(path_of(run_of(1, 20)), path_of(run_of(2, 20)), fs::copy_options::overwrite_existing);
  reopen();
  EXPECT_EQ(reused(run_of(2, 20)), 0);
  EXPECT_EQ(reused(run_of(1, 20)), 20);
  EXPECT_FALSE(fs::exists(path_of(run_of(2, 20))));
  const std::vector<std::string> log = take_log();
  ASSERT_EQ(log.size(), 1u);
  EXPECT_NE(log[0].find("foreign"), std::string::npos) << log[0];
}

// Somebody who can write a header with a right checksum gets no state served for a prompt that is not its own.
TEST_F(DiskCacheFolder, TokensAreComparedWhateverTheHeaderSays) {
  std::vector<int32_t> mine = run_of(1, 20), other = mine;
  other[3] = 77;
  reopen();
  put(mine);
  put(other);
  cache_.reset();
  const std::string header = bytes_of(path_of(mine)).substr(0, 176);
  write(path_of(mine), header + bytes_of(path_of(other)).substr(176));
  reopen();
  const auto match = cache_->find(mine);
  ASSERT_TRUE(match);
  const auto saved = cache_->load(*match, mine);
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, ErrorCode::kBadPack);
  EXPECT_NE(saved.error().message.find("foreign"), std::string::npos);
  EXPECT_FALSE(fs::exists(path_of(mine)));
  EXPECT_EQ(reused(mine), 0);
  EXPECT_EQ(reused(other), 20);
}

TEST_F(DiskCacheFolder, WhatIsNotOursIsLeftAlone) {
  fs::create_directories(folder_);
  const fs::path ours_by_name = path_of(run_of(1, 20));
  const std::string hex = path_of(run_of(2, 20)).filename().string();
  write(folder_ / "notes.txt", "notes");
  write(ours_by_name, "a diary");
  write(folder_ / "0123.fathom-prefix", "FTHMPRFX");
  write(folder_ / (hex + ".bak"), "FTHMPRFX");
  write(folder_ / (hex + ".tmp-x-1"), "FTHMPRFX");
  write(folder_ / (hex + ".tmp-999999999-1"), "a diary");
  fs::create_directories(folder_ / hex);
  options_.bytes_max = one_file_bytes(20);
  reopen();
  const std::vector<fs::path> before = files();
  EXPECT_EQ(before.size(), 7u);
  put(run_of(1, 20));
  EXPECT_EQ(bytes_of(ours_by_name), "a diary") << "not even an entry of that name may replace it";
  EXPECT_EQ(cache_->statistics().refused, 1);
  put(run_of(3, 20));
  put(run_of(4, 20));
  EXPECT_EQ(cache_->statistics().evictions, 1);
  EXPECT_EQ(cache_->statistics().bytes, one_file_bytes(20));
  cache_.reset();
  fs::remove(path_of(run_of(4, 20)));
  EXPECT_EQ(files(), before);
  EXPECT_EQ(take_log().size(), 2u) << "the diary, and the folder; each once";
}

TEST_F(DiskCacheFolder, UnfinishedWritesAreSweptOnceTheirProcessIsGone) {
  fs::create_directories(folder_);
  const std::string name = path_of(run_of(2, 20)).string();
  write(name + ".tmp-999999999-1", "FTHMPRFX and so on");  // above every process number
  write(name + ".tmp-999999999-2", "FTH");
  write(name + ".tmp-999999999-3", "");
  write(name + fmt::format(".tmp-{}-4", ::getppid()), "FTHMPRFX and so on");
  reopen();
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(files()[0], name + fmt::format(".tmp-{}-4", ::getppid()));
}

TEST_F(DiskCacheFolder, AnotherModelsEntriesStayAndCountAndAreEvictedInTheirTurn) {
  const DiskCacheOptions mine = options_;
  reopen();
  put(run_of(1, 20));
  options_.owner.fingerprint[0] ^= 1;
  options_.bytes_max = 2 * one_file_bytes(20);
  reopen();
  EXPECT_EQ(reused(run_of(1, 20)), 0);
  EXPECT_EQ(cache_->statistics().bytes, one_file_bytes(20));
  put(run_of(1, 20));
  options_ = mine;
  reopen();
  EXPECT_EQ(reused(run_of(1, 20)), 20) << "the way back to the first model";
  options_.owner.numerics = Numerics::kExact;
  reopen();
  EXPECT_EQ(reused(run_of(1, 20)), 0);
  options_ = mine;
  options_.rewind_tokens = 5;
  reopen();
  EXPECT_EQ(reused(run_of(1, 20)), 0) << "its rings are of another size";
  options_ = mine;
  options_.owner.context_tokens = 19;
  reopen();
  EXPECT_EQ(reused(joined(run_of(1, 20), {1})), 0);
  options_ = mine;
  options_.bytes_max = 2 * one_file_bytes(20);
  reopen();
  put(run_of(5, 20));
  EXPECT_TRUE(has(run_of(5, 20)));
  EXPECT_TRUE(has(run_of(1, 20)));
  EXPECT_EQ(cache_->statistics().evictions, 1) << "the other model's, which nobody used";
  EXPECT_TRUE(take_log().empty());
}

TEST_F(DiskCacheFolder, DroppedEntriesDoNotComeBack) {
  reopen();
  put(run_of(1, 20));
  const auto match = cache_->find(run_of(1, 20));
  ASSERT_TRUE(match);
  cache_->drop(match->key, "its rings contradict its position");
  EXPECT_FALSE(cache_->find(run_of(1, 20)));
  EXPECT_EQ(cache_->load(*match, run_of(1, 20)).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(files().empty());
  const std::vector<std::string> log = take_log();
  ASSERT_EQ(log.size(), 1u);
  EXPECT_NE(log[0].find("its rings contradict"), std::string::npos);
  put(run_of(1, 20));
  EXPECT_EQ(reused(run_of(1, 20)), 20) << "a new one of that name may be good";
}

// ---- When the disk refuses ----

TEST_F(DiskCacheFolder, AFullDiskCostsEntriesAndNothingElse) {
  reopen();
  put(run_of(1, 20));
  // A file may not grow beyond this: writes fail half way, as on a full disk.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 300;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  put(run_of(2, 20));
  put(run_of(3, 20));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, previous);
  EXPECT_EQ(cache_->statistics().write_failures, 2);
  EXPECT_EQ(take_log().size(), 1u) << "once is enough";
  EXPECT_EQ(files().size(), 1u) << "no half file stays";
  EXPECT_EQ(reused(run_of(1, 20)), 20);
  put(run_of(4, 20));
  EXPECT_EQ(reused(run_of(4, 20)), 20);
}

TEST_F(DiskCacheFolder, AFolderThatVanishesIsNoTrouble) {
  reopen();
  put(run_of(1, 20));
  fs::remove_all(folder_);
  const auto match = cache_->find(run_of(1, 20));
  ASSERT_TRUE(match);
  EXPECT_EQ(cache_->load(*match, run_of(1, 20)).error().code, ErrorCode::kNotFound);
  put(run_of(2, 20));
  EXPECT_EQ(cache_->statistics().write_failures, 1);
  EXPECT_FALSE(cache_->find(run_of(1, 20)));
}

TEST_F(DiskCacheFolder, AReadOnlyFolderServesWhatItHolds) {
  if (::geteuid() == 0) GTEST_SKIP() << "nothing is read-only for root";
  reopen();
  put(run_of(1, 20));
  cache_.reset();
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  reopen();
  EXPECT_EQ(take_log().size(), 1u);
  EXPECT_EQ(reused(run_of(1, 20)), 20);
  put(run_of(2, 20));
  EXPECT_EQ(cache_->statistics().write_failures, 1);
  fs::permissions(folder_, fs::perms::owner_all);
}

TEST_F(DiskCacheFolder, AFolderThatCannotBeIsAnErrorOfItsOwn) {
  fs::create_directories(folder_);
  write(folder_ / "file", "");
  options_.folder = (folder_ / "file").string();
  EXPECT_EQ(DiskCache::open(options_).error().code, ErrorCode::kIo);
  options_.folder = (folder_ / "file" / "below").string();
  EXPECT_EQ(DiskCache::open(options_).error().code, ErrorCode::kIo);
  options_.folder = "";
  EXPECT_EQ(DiskCache::open(options_).error().code, ErrorCode::kInvalidArgument);
}

// The clock is what the writer asks for before it writes: held there, it cannot empty the queue.
TEST_F(DiskCacheFolder, AFullQueueTakesNothingAndNeverWaits) {
  std::mutex mutex;
  std::condition_variable changed;
  bool held = true, reached = false;
  options_.now_ms = [&] {
    std::unique_lock lock(mutex);
    reached = true;
    changed.notify_all();
    changed.wait(lock, [&] { return !held; });
    return int64_t{1000};
  };
  const auto one = static_cast<int64_t>(state_of(run_of(1, 20), true).bytes());
  options_.queue_bytes_max = 2 * one;
  {
    const std::lock_guard lock(mutex);
    held = false;
  }
  reopen();
  {
    const std::lock_guard lock(mutex);
    held = true;
    reached = false;
  }
  EXPECT_EQ(cache_->put(state_of(run_of(1, 20), true)), DiskCachePut::kQueued);
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached; });
  }
  EXPECT_EQ(cache_->put(state_of(run_of(2, 20), true)), DiskCachePut::kQueued);
  EXPECT_EQ(cache_->put(state_of(run_of(2, 20), true)), DiskCachePut::kPresent);
  EXPECT_FALSE(cache_->has_room(static_cast<int64_t>(state_of(run_of(3, 20), true).bytes())));
  EXPECT_EQ(cache_->put(state_of(run_of(3, 20), true)), DiskCachePut::kQueueFull);
  EXPECT_EQ(cache_->statistics().queued_entries, 2);
  EXPECT_EQ(cache_->statistics().queued_bytes, 2 * one);
  EXPECT_EQ(cache_->statistics().refused, 1);
  EXPECT_FALSE(cache_->flush(1));
  {
    const std::lock_guard lock(mutex);
    held = false;
  }
  changed.notify_all();
  EXPECT_TRUE(cache_->flush(600'000));
  EXPECT_EQ(cache_->statistics().queued_bytes, 0);
  EXPECT_TRUE(has(run_of(1, 20)) && has(run_of(2, 20)) && !has(run_of(3, 20)));
}

}  // namespace
}  // namespace fathom
