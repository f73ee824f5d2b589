#include "engine/disk_cache.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"
#include "engine/disk_cache_file.h"
#include "engine/disk_cache_index.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

// A temporary file whose writer cannot be told dead (its number is in use again) is left for this long.
constexpr int64_t kTemporaryAgeMs = 3600 * 1000;
// More would let two bytes that a power failure has garbled keep an entry for months.
constexpr uint64_t kHitsMax = 1 << 10;

int64_t system_now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool process_is_gone(int64_t process) {
  return ::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
}

// Tells one state of a file from the next, without reading it.
struct FileStamp {
  int64_t inode = 0, bytes = 0, modified_ns = 0;
  bool operator==(const FileStamp&) const = default;

  static std::optional<FileStamp> of(const std::string& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return std::nullopt;
    return FileStamp{.inode = static_cast<int64_t>(status.st_ino),
                     .bytes = static_cast<int64_t>(status.st_size),
                     .modified_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
  }
};

}  // namespace

struct DiskCache::Impl {
  explicit Impl(const DiskCacheOptions& given)
      : options(given),
        pack(disk_cache_pack(given.owner, given.rewind_tokens)),
        tail_tokens(std::min(given.rewind_tokens, kDiskCacheTailTokens)) {
    if (!options.now_ms) options.now_ms = system_now_ms;
  }

  const std::string& folder() const { return options.folder; }
  std::string path_of(const DiskCacheKey& key) const { return folder() + "/" + disk_cache_file_name(key); }

  std::vector<DiskCacheMatch> matches(std::span<const int32_t> prompt) const;
  DiskCacheKey key_of(std::span<const int32_t> tokens) const;

  Result<void> scan();
  void adopt(const std::string& name, const DiskCacheKey& key);
  void sweep_temporary(const std::string& name, int64_t process) const;
  void reject(const DiskCacheKey& key, const Error& error);
  void forget(const DiskCacheKey& key);

  void run_writer();
  void write_one(const SavedState& saved);
  void failed_to_write(const Error& error);
  bool make_room(int64_t bytes);
  DiskCacheIndex::Guard guard() const;
  void write_usage();

  DiskCacheOptions options;
  const DiskCacheKey pack;
  const int tail_tokens;

  mutable std::mutex mutex;  // all below; never held while a file is touched or a prompt is hashed
  std::condition_variable work_came, work_done;
  DiskCacheIndex index;
  DiskCacheStatistics statistics;
  std::map<uint64_t, std::shared_ptr<const std::vector<int32_t>>> protected_prompts;
  std::deque<SavedState> queue;  // the first is being written while is_writing
  std::vector<std::byte> spare;  // memory of the last state written
  uint64_t submitted = 0, completed = 0;
  std::set<DiskCacheKey> used;   // whose uses are not in their files yet
  uint64_t next_protection = 0;
  bool is_writing = false, is_writing_usage = false, stops = false;
  // Files under our names that are not offered: what is no entry, and what could not be deleted.
  std::map<DiskCacheKey, FileStamp> rejected;
  std::set<DiskCacheKey> not_ours;
  bool writes_fail = false;
  std::thread writer;
};

// ---- Finding ----

// The lengths are those of a moment ago when the hashes are ready; what came meanwhile is not found this time.
std::vector<DiskCacheMatch> DiskCache::Impl::matches(std::span<const int32_t> prompt) const {
  std::vector<int64_t> lengths;
  {
    const std::lock_guard lock(mutex);
    lengths = index.lengths();
  }
  std::vector<DiskCacheKey> keys;
  PrefixHasher hasher(pack);
  size_t taken = 0;
  for (const int64_t length : lengths) {
    if (length > static_cast<int64_t>(prompt.size())) break;
    hasher.take(prompt.subspan(taken, static_cast<size_t>(length) - taken));
    taken = static_cast<size_t>(length);
    keys.push_back(hasher.key());
  }
  const std::lock_guard lock(mutex);
  return index.matches(prompt, lengths, keys, options.rewind_tokens);
}

DiskCacheKey DiskCache::Impl::key_of(std::span<const int32_t> tokens) const {
  PrefixHasher hasher(pack);
  hasher.take(tokens);
  return hasher.key();
}

// ---- The folder ----

// Takes in what other processes have written, and forgets what they have evicted.
Result<void> DiskCache::Impl::scan() {
  std::set<DiskCacheKey> there;
  std::vector<DiskCacheKey> known;
  {
    const std::lock_guard lock(mutex);
    known = index.keys();
  }
  std::error_code error;
  fs::directory_iterator at(folder(), error);
  for (const fs::directory_iterator end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    DiskCacheKey key;
    if (parse_disk_cache_file_name(name, key)) {
      there.insert(key);
      adopt(name, key);
    } else if (const int64_t process = disk_cache_temporary_owner(name); process >= 0) {
      sweep_temporary(name, process);
    }
  }
  if (error) return Error::io("{}: cannot read the folder: {}", folder(), error.message());
  const std::lock_guard lock(mutex);
  for (const DiskCacheKey& key : known)
    if (!there.contains(key)) index.remove(key);
  return {};
}

void DiskCache::Impl::adopt(const std::string& name, const DiskCacheKey& key) {
  const std::string path = folder() + "/" + name;
  std::optional<FileStamp> earlier;
  {
    const std::lock_guard lock(mutex);
    if (index.get(key) != nullptr) return;
    if (const auto found = rejected.find(key); found != rejected.end()) earlier = found->second;
  }
  if (earlier && earlier == FileStamp::of(path)) return;
  Result<DiskCacheFileInfo> info = examine_disk_cache_file(path, key, pack, tail_tokens);
  if (!info.ok()) return reject(key, info.error());
  info->hits = std::min(info->hits, kHitsMax);
  const int64_t now_ms = options.now_ms();
  info->last_used_ms = std::clamp<int64_t>(info->last_used_ms, 0, now_ms);
  const bool usable = info->known_version && info->pack == pack && info->tokens <= options.owner.context_tokens;
  const std::lock_guard lock(mutex);
  rejected.erase(key);
  not_ours.erase(key);
  index.insert(std::move(*info), usable);
}

void DiskCache::Impl::sweep_temporary(const std::string& name, int64_t process) const {
  const std::string path = folder() + "/" + name;
  const std::optional<FileStamp> stamp = FileStamp::of(path);
  if (!stamp) return;
  const bool is_old = system_now_ms() - stamp->modified_ns / 1'000'000 > kTemporaryAgeMs;
  if (!(process_is_gone(process) || is_old) || !begins_like_disk_cache_file(path)) return;
  if (::unlink(path.c_str()) == 0)
    log_info("prefix cache: {}: deleted: its writing was never finished", path);
}

// An entry is deleted, what is none stays; either is not looked at again until it changes.
void DiskCache::Impl::reject(const DiskCacheKey& key, const Error& error) {
  if (error.code == ErrorCode::kNotFound) return forget(key);
  const std::string path = path_of(key);
  const bool is_entry = error.code == ErrorCode::kBadPack;
  if (is_entry && ::unlink(path.c_str()) == 0) {
    log_warning("prefix cache: {}: deleted", error.message);
  } else if (is_entry) {
    log_warning("prefix cache: {}: ignored, it cannot be deleted: {}", error.message,
                std::error_code(errno, std::generic_category()).message());
  } else {
    log_warning("prefix cache: {}: ignored", error.message);
  }
  const std::optional<FileStamp> stamp = FileStamp::of(path);
  const std::lock_guard lock(mutex);
  index.remove(key);
  used.erase(key);
  if (is_entry) ++statistics.dropped;
  if (stamp) rejected[key] = *stamp;
  if (error.code == ErrorCode::kInvalidArgument) not_ours.insert(key);
}

void DiskCache::Impl::forget(const DiskCacheKey& key) {
  const std::lock_guard lock(mutex);
  index.remove(key);
  used.erase(key);
}

// ---- Writing ----

void DiskCache::Impl::run_writer() {
  std::unique_lock lock(mutex);
  while (true) {
    work_came.wait(lock, [&] { return stops || !queue.empty() || !used.empty(); });
    if (!used.empty()) {
      is_writing_usage = true;
      lock.unlock();
      write_usage();
      lock.lock();
      is_writing_usage = false;
    }
    if (!stops && !queue.empty()) {
      is_writing = true;
      // Appending to a deque leaves its elements where they are.
      const SavedState& saved = queue.front();
      lock.unlock();
      write_one(saved);
      lock.lock();
      is_writing = false;
      statistics.queued_bytes -= static_cast<int64_t>(queue.front().bytes());
      spare = std::move(queue.front().state);
      queue.pop_front();
      ++completed;
    }
    work_done.notify_all();
    if (stops) return;
  }
}

void DiskCache::Impl::write_one(const SavedState& saved) {
  const DiskCacheKey key = key_of(saved.tokens);
  const int64_t bytes = disk_cache_file_bytes(saved);
  const int64_t now_ms = options.now_ms();
  const Result<void> scanned = scan();
  if (!scanned.ok()) return failed_to_write(scanned.error());
  {
    const std::lock_guard lock(mutex);
    if (not_ours.contains(key)) {
      ++statistics.refused;
      return;
    }
    const DiskCacheIndex::Entry* old = index.get(key);
    if (old != nullptr && old->usable && (old->file.has_logits || saved.logits.empty())) {
      index.count_use(key, now_ms);
      used.insert(key);
      return;
    }
  }
  if (!make_room(bytes)) {
    const std::lock_guard lock(mutex);
    ++statistics.refused;
    return;
  }
  Result<DiskCacheFileInfo> info =
      write_disk_cache_file(path_of(key), options.owner, pack, tail_tokens, saved, now_ms);
  if (!info.ok()) return failed_to_write(info.error());
  std::vector<DiskCacheKey> prefixes;
  for (const DiskCacheMatch& match : matches(saved.tokens))
    if (match.common_tokens == match.entry_tokens) prefixes.push_back(match.key);
  const std::lock_guard lock(mutex);
  ++statistics.writes;
  rejected.erase(key);
  index.insert(std::move(*info), true);
  index.note_extension(key, prefixes);
  if (writes_fail) log_info("prefix cache: {}: writing works again", folder());
  writes_fail = false;
}

// A full disk fails every time: the first line says it.
void DiskCache::Impl::failed_to_write(const Error& error) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex);
    ++statistics.write_failures;
    is_first = !std::exchange(writes_fail, true);
  }
  if (is_first) log_warning("prefix cache: {}; work goes on without what could not be written", error.message);
}

DiskCacheIndex::Guard DiskCache::Impl::guard() const {
  std::vector<std::shared_ptr<const std::vector<int32_t>>> prompts;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [id, prompt] : protected_prompts) prompts.push_back(prompt);
  }
  DiskCacheIndex::Guard guard;
  for (const auto& prompt : prompts) {
    const std::vector<DiskCacheMatch> found = matches(*prompt);
    for (const DiskCacheMatch& match : found) guard.last.insert(match.key);
    if (const DiskCacheMatch* best = best_match(found); best != nullptr) guard.never.insert(best->key);
  }
  return guard;
}

// Before the write, so that the folder is never over its size, and only when it leads to enough.
bool DiskCache::Impl::make_room(int64_t bytes) {
  const DiskCacheIndex::Guard kept = guard();
  std::optional<std::vector<DiskCacheKey>> victims;
  const int64_t now_ms = options.now_ms();
  {
    const std::lock_guard lock(mutex);
    victims = index.victims(bytes, options.bytes_max, kept, now_ms);
  }
  if (!victims) return false;
  for (const DiskCacheKey& key : *victims) {
    const std::string path = path_of(key);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      failed_to_write(Error::io("{}: cannot delete: {}", path,
                                std::error_code(errno, std::generic_category()).message()));
      return false;
    }
    forget(key);
    const std::lock_guard lock(mutex);
    ++statistics.evictions;
  }
  return true;
}

// How often and when entries served is worth no log line when it cannot be kept.
void DiskCache::Impl::write_usage() {
  std::vector<DiskCacheFileInfo> entries;
  {
    const std::lock_guard lock(mutex);
    for (const DiskCacheKey& key : std::exchange(used, {}))
      if (const DiskCacheIndex::Entry* entry = index.get(key); entry != nullptr) entries.push_back(entry->file);
  }
  for (const DiskCacheFileInfo& file : entries)
    (void)write_disk_cache_usage(path_of(file.key), file.key, file.hits, file.last_used_ms);
}

// ---- What others call ----

Result<std::unique_ptr<DiskCache>> DiskCache::open(const DiskCacheOptions& options) {
  if (options.folder.empty()) return Error::invalid("prefix cache: no folder is named");
  if (options.bytes_max < 0 || options.queue_bytes_max < 0 || options.rewind_tokens < 0)
    return Error::invalid("prefix cache: sizes of {} and {} bytes and a rewind of {} tokens, expected 0 or more",
                          options.bytes_max, options.queue_bytes_max, options.rewind_tokens);
  std::error_code error;
  if (fs::create_directories(options.folder, error))
    fs::permissions(options.folder, fs::perms::owner_all, error);
  if (!fs::is_directory(options.folder, error))
    return Error::io("{}: cannot make the folder of the prefix cache: {}", options.folder,
                     error ? error.message() : "it is a file");
  auto impl = std::make_unique<Impl>(options);
  FATHOM_TRY(impl->scan());
  if (::access(options.folder.c_str(), W_OK) != 0)
    log_warning("prefix cache: {}: not writable: what is there is used, nothing is added", options.folder);
  else
    impl->make_room(0);
  // Nobody else has it yet: no lock.
  log_info("prefix cache: {}: {} entries, {} of at most {} MiB", options.folder, impl->index.size(),
           impl->index.bytes() >> 20, options.bytes_max >> 20);
  if (const DiskCacheIndex::Sum others = impl->index.of_other_versions(); others.entries > 0)
    log_info("prefix cache: {}: {} of the entries, {} bytes, are in other versions of the format: of no use here, "
             "they are the first to make room",
             options.folder, others.entries, others.bytes);
  impl->writer = std::thread([raw = impl.get()] { raw->run_writer(); });
  return std::unique_ptr<DiskCache>(new DiskCache(std::move(impl)));
}

DiskCache::DiskCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

DiskCache::~DiskCache() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stops = true;
  }
  impl_->work_came.notify_all();
  impl_->writer.join();
}

std::optional<DiskCacheMatch> DiskCache::find(std::span<const int32_t> prompt) const {
  const std::vector<DiskCacheMatch> found = impl_->matches(prompt);
  const DiskCacheMatch* best = best_match(found);
  if (best == nullptr) return std::nullopt;
  return *best;
}

Result<SavedState> DiskCache::load(const DiskCacheMatch& match, std::span<const int32_t> prompt) {
  Impl& impl = *impl_;
  const std::string path = impl.path_of(match.key);
  {
    const std::lock_guard lock(impl.mutex);
    const DiskCacheIndex::Entry* entry = impl.index.get(match.key);
    if (entry == nullptr || !entry->usable) return Error::not_found("{}: no longer in the prefix cache", path);
  }
  Result<SavedState> saved = read_disk_cache_file(path, match.key, impl.options.owner);
  if (saved.ok()) {
    const auto common = static_cast<size_t>(match.common_tokens);
    const std::vector<int32_t>& tokens = saved->tokens;
    if (static_cast<int64_t>(tokens.size()) != match.entry_tokens || common > prompt.size() ||
        !std::equal(prompt.begin(), prompt.begin() + match.common_tokens, tokens.begin()) ||
        impl.key_of(tokens) != match.key)
      saved = Error::bad_pack("{}: foreign: its tokens are not those that it is named by", path);
  }
  if (!saved.ok()) {
    if (saved.error().code != ErrorCode::kIo) {
      impl.reject(match.key, saved.error());
      return std::move(saved).error();
    }
    log_warning("prefix cache: {}: not used again in this run", saved.error().message);
    const std::lock_guard lock(impl.mutex);
    impl.index.mark_unusable(match.key);
    return std::move(saved).error();
  }
  const int64_t now_ms = impl.options.now_ms();
  {
    const std::lock_guard lock(impl.mutex);
    ++impl.statistics.hits;
    impl.index.count_use(match.key, now_ms);
    impl.used.insert(match.key);
  }
  impl.work_came.notify_all();
  return saved;
}

void DiskCache::drop(const DiskCacheKey& key, std::string_view reason) {
  impl_->reject(key, Error::bad_pack("{}: {}", impl_->path_of(key), reason));
}

bool DiskCache::has_room(int64_t state_bytes) const {
  const std::lock_guard lock(impl_->mutex);
  return state_bytes <= impl_->options.bytes_max &&
         (impl_->queue.empty() || impl_->statistics.queued_bytes + state_bytes <= impl_->options.queue_bytes_max);
}

std::vector<std::byte> DiskCache::spare_memory() {
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->spare, {});
}

DiskCachePut DiskCache::put(SavedState&& saved) {
  Impl& impl = *impl_;
  const auto bytes = static_cast<int64_t>(saved.bytes());
  {
    const std::lock_guard lock(impl.mutex);
    if (disk_cache_file_bytes(saved) > impl.options.bytes_max) {
      ++impl.statistics.refused;
      return DiskCachePut::kTooLarge;
    }
    const auto waits = [&](const SavedState& other) {
      return other.tokens == saved.tokens && (saved.logits.empty() || !other.logits.empty());
    };
    if (std::any_of(impl.queue.begin(), impl.queue.end(), waits)) return DiskCachePut::kPresent;
    if (!impl.queue.empty() && impl.statistics.queued_bytes + bytes > impl.options.queue_bytes_max) {
      ++impl.statistics.refused;
      return DiskCachePut::kQueueFull;
    }
    impl.statistics.queued_bytes += bytes;
    impl.queue.push_back(std::move(saved));
    ++impl.submitted;
  }
  impl.work_came.notify_all();
  return DiskCachePut::kQueued;
}

void DiskCache::note_use(std::span<const int32_t> tokens) {
  const DiskCacheKey key = impl_->key_of(tokens);
  const int64_t now_ms = impl_->options.now_ms();
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->index.get(key) == nullptr) return;
    impl_->index.count_use(key, now_ms);
    impl_->used.insert(key);
  }
  impl_->work_came.notify_all();
}

std::unique_ptr<DiskCache::Protection> DiskCache::protect(std::vector<int32_t> prompt) {
  auto shared = std::make_shared<const std::vector<int32_t>>(std::move(prompt));
  const std::lock_guard lock(impl_->mutex);
  const uint64_t id = impl_->next_protection++;
  impl_->protected_prompts.emplace(id, std::move(shared));
  return std::unique_ptr<Protection>(new Protection(*impl_, id));
}

DiskCache::Protection::~Protection() {
  const std::lock_guard lock(impl_.mutex);
  impl_.protected_prompts.erase(id_);
}

bool DiskCache::flush(int64_t wait_ms) {
  std::unique_lock lock(impl_->mutex);
  const uint64_t wanted = impl_->submitted;
  return impl_->work_done.wait_for(lock, std::chrono::milliseconds(wait_ms), [&] {
    return impl_->completed >= wanted && impl_->used.empty() && !impl_->is_writing_usage;
  });
}

DiskCacheStatistics DiskCache::statistics() const {
  const std::lock_guard lock(impl_->mutex);
  DiskCacheStatistics statistics = impl_->statistics;
  statistics.entries = impl_->index.size();
  statistics.bytes = impl_->index.bytes();
  statistics.bytes_max = impl_->options.bytes_max;
  statistics.queued_entries = static_cast<int64_t>(impl_->queue.size());
  return statistics;
}

}  // namespace fathom
