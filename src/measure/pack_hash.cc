#include "measure/pack_hash.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <vector>

#include "base/file.h"
#include "base/sha256.h"
#include "measure/json_members.h"

namespace fathom::measure {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Advance = std::function<bool(int64_t)>;

constexpr size_t kReadBytes = size_t{4} << 20;
constexpr uint64_t kCacheLimitBytes = uint64_t{16} << 20;

/// Path, size and time of change: a file that was written again is another file.
std::string cache_key(const std::string& path, const struct stat& status) {
  return fmt::format("{}|{}|{}.{:09}", path, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

Result<std::string> hash_file(const std::string& path, const Advance& advance) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return Error::io("{}: {}", path, std::strerror(errno));
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  std::vector<std::byte> buffer(kReadBytes);
  Sha256 hash;
  Result<std::string> result = std::string();
  for (;;) {
    const ssize_t bytes = read(descriptor, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) result = Error::io("{}: {}", path, std::strerror(errno));
    if (bytes <= 0) break;
    hash.update(std::span(buffer.data(), static_cast<size_t>(bytes)));
    if (!advance(bytes)) {
      result = Error::cancelled("hashing of {} was ended", path);
      break;
    }
  }
  close(descriptor);
  if (result.ok()) result = hex_string(hash.finish());
  return result;
}

bool is_part_of_pack(const fs::path& path) {
  const std::string suffix = path.extension();
  return suffix == ".safetensors" || suffix == ".json" || suffix == ".gguf";
}

/// The files of a pack, by name.
Result<std::vector<std::string>> files_of(const std::string& path) {
  std::error_code error;
  std::vector<std::string> files;
  static const std::regex kShard("(.*-)[0-9]{5}(-of-[0-9]{5}\\.gguf)");
  std::smatch shard;
  const std::string name = fs::path(path).filename();
  const bool is_folder = fs::is_directory(path, error);
  if (!is_folder && !std::regex_match(name, shard, kShard)) return std::vector{path};
  const fs::path folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string other = entry->path().filename();
    std::smatch found;
    const bool belongs =
        is_folder ? is_part_of_pack(entry->path())
                  : std::regex_match(other, found, kShard) && found[1] == shard[1] && found[2] == shard[2];
    if (belongs && entry->is_regular_file(error)) files.push_back(entry->path());
  }
  if (error) return Error::io("{}: {}", folder.string(), error.message());
  if (files.empty()) return Error::not_found("{}: expected files of a pack, found none", path);
  std::sort(files.begin(), files.end());
  return files;
}

json read_cache(const std::string& path) {
  if (path.empty() || !file_exists(path)) return json::object();
  const Result<std::string> text = read_text_file(path, kCacheLimitBytes);
  json cache = text.ok() ? json::parse(*text, nullptr, false) : json();
  // A damaged cache only costs time.
  return cache.is_object() ? cache : json::object();
}

void write_cache(const std::string& path, const json& cache) {
  if (path.empty()) return;
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  // As above: what cannot be kept is computed again.
  if (!write_json_file(path, cache).ok()) return;
}

}  // namespace

std::string pack_hash_cache_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::string(cache) + "/fathom/pack_hashes.json";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? std::string(home) + "/.cache/fathom/pack_hashes.json" : "";
}

Result<std::string> pack_sha256(const std::string& path, const std::string& cache_path,
                                const std::function<bool(int64_t, int64_t)>& progress) {
  std::error_code error;
  const std::string absolute = fs::absolute(path, error).lexically_normal();
  FATHOM_ASSIGN(const std::vector<std::string> files, files_of(error ? path : absolute));
  json cache = read_cache(cache_path);
  int64_t total_bytes = 0, done_bytes = 0;
  for (const std::string& file : files) {
    FATHOM_ASSIGN(const FileInfo info, file_info(file));
    total_bytes += static_cast<int64_t>(info.size_bytes);
  }
  const Advance advance = [&](int64_t bytes) { return progress(done_bytes += bytes, total_bytes); };

  std::string listing, hash;
  for (const std::string& file : files) {
    struct stat status{};
    if (stat(file.c_str(), &status) != 0) return Error::io("{}: {}", file, std::strerror(errno));
    const std::string key = cache_key(file, status);
    if (const auto known = cache.find(key); known != cache.end() && known->is_string()) {
      hash = *known;
      done_bytes += status.st_size;
    } else {
      FATHOM_ASSIGN(hash, hash_file(file, advance));
      cache[key] = hash;
      write_cache(cache_path, cache);
    }
    listing += hash + "  " + fs::path(file).filename().string() + "\n";
  }
  return files.size() == 1 && file_info(path).ok() && !file_info(path)->is_directory
             ? hash
             : hex_string(sha256(std::as_bytes(std::span(listing))));
}

}  // namespace fathom::measure
