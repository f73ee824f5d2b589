// Random Engram rows a second from a file of 1 GiB, by I/O threads, for one token and for a chunk.
// `cached` leaves the file in the page cache: what sorting, requests and decoding cost. `disk` drops it
// before each fetch: what the disk gives at that many requests in flight. TMPDIR chooses the disk.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "model/engram_reader.h"

namespace fathom {
namespace {

constexpr int64_t kRowBytes = 264;
constexpr int64_t kRows = (int64_t{1} << 30) / kRowBytes;
constexpr int kColumns = 24;

// The table, written on first use and removed at exit. Its rows repeat every 4 MiB.
class TableFile {
 public:
  TableFile() {
    std::string name = (std::filesystem::temp_directory_path() / "fathom_engram_bench_XXXXXX").string();
    descriptor_ = ::mkstemp(name.data());
    path_ = name;
    std::mt19937 random(1);
    std::vector<uint8_t> rows(kRowBytes * 16384);
    for (size_t at = 0; at < rows.size(); ++at)
      rows[at] = static_cast<uint8_t>(at % kRowBytes < 256 ? random() % 0x7F : 120 + random() % 8);
    for (int64_t written = 0; written < kRows * kRowBytes;) {
      const ssize_t count = ::write(descriptor_, rows.data(), rows.size());
      if (count <= 0) break;
      written += count;
    }
    ::fsync(descriptor_);
  }
  ~TableFile() {
    ::close(descriptor_);
    std::filesystem::remove(path_);
  }
  const std::string& path() const { return path_; }
  void drop_from_cache() const { (void)::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED); }

 private:
  std::string path_;
  int descriptor_ = -1;
};

void read_rows(benchmark::State& state, bool from_disk) {
  static const TableFile file;
  const EngramTableInfo info{
      .type = DType::kEngramRow264, .rows = kRows, .width = 256,
      .data = {.path = file.path(), .stride_bytes = kRowBytes, .row_bytes = kRowBytes},
      .scales = {}, .biases = {}};
  auto reader = EngramReader::open({info}, kColumns, {.io_threads = static_cast<int>(state.range(0))});
  if (!reader.ok()) return state.SkipWithError(reader.error().message.c_str());
  const int64_t tokens = state.range(1);
  std::mt19937_64 random(7);
  std::vector<int64_t> ids(static_cast<size_t>(tokens * kColumns));
  for (auto _ : state) {
    state.PauseTiming();
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % kRows);
    if (from_disk) file.drop_from_cache();
    state.ResumeTiming();
    const Result<void> done = reader.value()->start(ids, tokens)->wait();
    if (!done.ok()) return state.SkipWithError(done.error().message.c_str());
  }
  state.SetItemsProcessed(state.iterations() * tokens * kColumns);
}

void cached(benchmark::State& state) { read_rows(state, false); }
void disk(benchmark::State& state) { read_rows(state, true); }

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"threads", "tokens"})->ArgsProduct({{1, 8, 32}, {1, 512}})->UseRealTime();
}
BENCHMARK(cached)->Apply(sizes);
BENCHMARK(disk)->Apply(sizes);

}  // namespace
}  // namespace fathom

BENCHMARK_MAIN();
