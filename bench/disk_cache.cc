// The prefix cache on disk: an entry of 128K tokens of the released shape written, and loaded from the page cache
// and from the disk, beside a plain read of as many bytes; a start and a look-up with 4000 entries; and
// a token of the loop guard. TMPDIR chooses the disk.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "engine/disk_cache.h"
#include "engine/loop_guard.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
constexpr int kVocab = 129280;
constexpr int64_t kForever = 3600 * 1000;

struct Folder {
  fs::path path = fs::temp_directory_path() / ("fathom_disk_cache_" + std::to_string(::getpid()));
  Folder() { fs::remove_all(path); }
  ~Folder() { fs::remove_all(path); }
  std::string only_file() const { return fs::directory_iterator(path)->path().string(); }
  DiskCacheOptions options() const {
    return {.folder = path.string(),
            .queue_bytes_max = int64_t{1} << 30,
            .owner = {.vocab_size = kVocab, .context_tokens = 1 << 20, .state_bytes_max = int64_t{1} << 30},
            .now_ms = {}};
  }
};

std::vector<int32_t> prompt_of(size_t tokens, uint32_t seed) {
  std::vector<int32_t> prompt(tokens);
  for (int32_t& id : prompt) id = static_cast<int32_t>((seed = seed * 1664525 + 1013904223) >> 8) % kVocab;
  return prompt;
}

SavedState long_state(uint32_t seed) {
  SavedState saved{.tokens = prompt_of(131072, seed), .logits = std::vector<float>(kVocab, 1.5f), .state = {}};
  saved.state.resize(117'000'000 - saved.bytes());
  for (size_t at = 0; at < saved.state.size(); at += 64) saved.state[at] = static_cast<std::byte>(at * 31 >> 9);
  return saved;
}

void drop_from_page_cache(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  (void)::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

void write_long(benchmark::State& state) {
  const Folder folder;
  const auto cache = std::move(*DiskCache::open(folder.options()));
  uint32_t seed = 1;
  for (auto _ : state) {
    state.PauseTiming();
    SavedState saved = long_state(seed++);
    state.ResumeTiming();
    (void)cache->put(std::move(saved));
    (void)cache->flush(kForever);
  }
  state.SetBytesProcessed(cache->statistics().writes * 117'000'000);
}
BENCHMARK(write_long)->Name("write")->Unit(benchmark::kMillisecond)->UseRealTime();

void load_long(benchmark::State& state, bool from_disk) {
  const Folder folder;
  const auto cache = std::move(*DiskCache::open(folder.options()));
  const std::vector<int32_t> prompt = prompt_of(131072, 1);
  (void)cache->put(long_state(1));
  (void)cache->flush(kForever);
  const auto match = cache->find(prompt);
  if (!match) return state.SkipWithError("not written");
  for (auto _ : state) {
    state.PauseTiming();
    if (from_disk) drop_from_page_cache(folder.only_file());
    state.ResumeTiming();
    if (!cache->load(*match, prompt).ok()) return state.SkipWithError("not loaded");
  }
  state.SetBytesProcessed(cache->statistics().hits * 117'000'000);
}
BENCHMARK_CAPTURE(load_long, cached, false)->Name("load/cached")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(load_long, disk, true)->Name("load/disk")->Unit(benchmark::kMillisecond)->UseRealTime();

void read_plainly(benchmark::State& state) {
  const Folder folder;
  const auto cache = std::move(*DiskCache::open(folder.options()));
  (void)cache->put(long_state(1));
  (void)cache->flush(kForever);
  const std::string path = folder.only_file();
  std::vector<std::byte> piece(1 << 18);
  int64_t bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    drop_from_page_cache(path);
    state.ResumeTiming();
    const auto file = RandomAccessFile::open(path);
    for (uint64_t at = 0; at + piece.size() <= file->size_bytes(); at += piece.size())
      (void)file->read_at(at, piece);
    bytes += static_cast<int64_t>(file->size_bytes());
  }
  state.SetBytesProcessed(bytes);
}
BENCHMARK(read_plainly)->Name("read/disk")->Unit(benchmark::kMillisecond)->UseRealTime();

// Of every length one, which is the worst: a hash for each.
struct ManyEntries {
  Folder folder;
  std::unique_ptr<DiskCache> cache;
  ManyEntries() {
    cache = std::move(*DiskCache::open(folder.options()));
    for (uint32_t entry = 0; entry < 4000; ++entry) {
      const std::vector<int32_t> tokens = prompt_of(64 + entry, 7 + entry);
      (void)cache->put({.tokens = tokens, .logits = {}, .state = std::vector<std::byte>(1000)});
    }
    (void)cache->flush(kForever);
  }
};

void start_and_find(benchmark::State& state, bool start) {
  static const ManyEntries many;
  const std::vector<int32_t> prompt = prompt_of(131072, 1);
  for (auto _ : state) {
    if (start)
      benchmark::DoNotOptimize(DiskCache::open(many.folder.options()));
    else
      benchmark::DoNotOptimize(many.cache->find(prompt));
  }
}
BENCHMARK_CAPTURE(start_and_find, start, true)->Name("start/4000")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(start_and_find, find, false)->Name("find/4000")->Unit(benchmark::kMicrosecond)->UseRealTime();

void guard_token(benchmark::State& state) {
  LoopGuard guard({.mode = LoopGuardMode::kObserve});
  uint32_t seed = 1;
  for (auto _ : state)
    benchmark::DoNotOptimize(guard.take(static_cast<int32_t>((seed = seed * 1664525 + 1013904223) >> 12)));
}
BENCHMARK(guard_token)->Name("loop_guard")->Unit(benchmark::kNanosecond);

}  // namespace
}  // namespace fathom

BENCHMARK_MAIN();
