#include "engine/disk_cache_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>

#include "base/file.h"

namespace fathom {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

constexpr char kMagic[8] = {'F', 'T', 'H', 'M', 'P', 'R', 'F', 'X'};
constexpr uint32_t kVersion = 1;
constexpr std::string_view kSuffix = ".fathom-prefix";
constexpr size_t kHexDigits = 64;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t has_logits;
  uint8_t pack[32];
  uint8_t key[32];
  uint8_t base[32];
  uint64_t tokens;
  uint64_t file_bytes;
  uint8_t checksum[32];  // of everything before it
  uint64_t hits;         // these two are rewritten in place
  int64_t last_used_ms;
};
static_assert(sizeof(Header) == 176);
constexpr size_t kUsageOffset = offsetof(Header, hits);

DiskCacheKey header_checksum(const Header& header) {
  return sha256(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, checksum)));
}

bool same(const uint8_t (&bytes)[32], const DiskCacheKey& key) {
  return std::memcmp(bytes, key.data(), key.size()) == 0;
}

void put(uint8_t (&bytes)[32], const DiskCacheKey& key) { std::memcpy(bytes, key.data(), key.size()); }

DiskCacheKey taken(const uint8_t (&bytes)[32]) {
  DiskCacheKey key;
  std::memcpy(key.data(), bytes, key.size());
  return key;
}

// Of an open file. A header of another version is not looked into.
Result<Header> read_header(const RandomAccessFile& file, const DiskCacheKey& key) {
  Header header{};
  const uint64_t there = std::min<uint64_t>(file.size_bytes(), sizeof header);
  FATHOM_TRY(file.read_at(0, std::as_writable_bytes(std::span(&header, 1)).first(there)));
  if (std::memcmp(header.magic, kMagic, std::min<uint64_t>(there, sizeof kMagic)) != 0)
    return Error::invalid("{}: not an entry of a prefix cache: expected it to begin with FTHMPRFX", file.path());
  if (there < sizeof header)
    return Error::bad_pack("{}: truncated: {} bytes, expected at least {}", file.path(), there, sizeof header);
  if (header.version != kVersion) return header;
  if (!same(header.checksum, header_checksum(header)))
    return Error::bad_pack("{}: damaged: the checksum of its header does not match", file.path());
  if (!same(header.key, key))
    return Error::bad_pack("{}: foreign: its header is of entry {}", file.path(),
                           hex_string(std::span(header.key).first(8)));
  if (header.file_bytes != file.size_bytes())
    return Error::bad_pack("{}: truncated: expected {} bytes, found {}", file.path(), header.file_bytes,
                           file.size_bytes());
  if (header.tokens > header.file_bytes / 4)
    return Error::bad_pack("{}: damaged: {} tokens in {} bytes", file.path(), header.tokens, header.file_bytes);
  return header;
}

}  // namespace

DiskCacheKey disk_cache_pack(const SavedStateOwner& owner, int rewind_tokens) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span("fathom prefix cache")));
  hash.update(std::as_bytes(std::span(owner.fingerprint)));
  const uint32_t words[2] = {owner.numerics == Numerics::kExact ? 1u : 0u, static_cast<uint32_t>(rewind_tokens)};
  hash.update(std::as_bytes(std::span(words)));
  return hash.finish();
}

PrefixHasher::PrefixHasher(const DiskCacheKey& pack) {
  hash_.update(std::as_bytes(std::span(pack)));
  hash_.update(std::as_bytes(std::span(&kVersion, 1)));
}

DiskCacheKey PrefixHasher::key() const {
  Sha256 copy = hash_;
  return copy.finish();
}

std::string disk_cache_file_name(const DiskCacheKey& key) { return hex_string(key) + std::string(kSuffix); }

bool parse_disk_cache_file_name(std::string_view name, DiskCacheKey& key) {
  if (name.size() != kHexDigits + kSuffix.size() || !name.ends_with(kSuffix)) return false;
  for (size_t byte = 0; byte < key.size(); ++byte) {
    const char* from = name.data() + 2 * byte;
    if (std::from_chars(from, from + 2, key[byte], 16).ptr != from + 2) return false;
  }
  return disk_cache_file_name(key) == name;
}

int64_t disk_cache_temporary_owner(std::string_view name) {
  constexpr std::string_view kMiddle = ".tmp-";
  constexpr size_t kNameBytes = kHexDigits + kSuffix.size();
  DiskCacheKey key;
  if (!parse_disk_cache_file_name(name.substr(0, kNameBytes), key)) return -1;
  name.remove_prefix(kNameBytes);
  if (!name.starts_with(kMiddle)) return -1;
  name.remove_prefix(kMiddle.size());
  int64_t process = -1;
  const char* const end = name.data() + name.size();
  const auto [after, error] = std::from_chars(name.data(), end, process);
  if (error != std::errc{} || process <= 0 || after == end || *after != '-') return -1;
  uint32_t number = 0;
  const auto [last, second_error] = std::from_chars(after + 1, end, number);
  return second_error == std::errc{} && last == end ? process : -1;
}

bool begins_like_disk_cache_file(const std::string& path) {
  const Result<RandomAccessFile> file = RandomAccessFile::open(path);
  if (!file.ok()) return false;
  std::array<std::byte, sizeof kMagic> begin;
  const auto there = std::span(begin).first(std::min<uint64_t>(file->size_bytes(), begin.size()));
  return file->read_at(0, there).ok() && std::memcmp(begin.data(), kMagic, there.size()) == 0;
}

int64_t disk_cache_file_bytes(const SavedState& saved) {
  return static_cast<int64_t>(sizeof(Header) + SavedStateImage::bytes(saved));
}

Result<DiskCacheFileInfo> write_disk_cache_file(const std::string& path, const SavedStateOwner& owner,
                                                const DiskCacheKey& pack, int tail_tokens,
                                                const SavedState& saved, int64_t now_ms) {
  const std::span<const int32_t> tokens(saved.tokens);
  const size_t tail = std::min(tokens.size(), static_cast<size_t>(tail_tokens));
  PrefixHasher hasher(pack);
  hasher.take(tokens.first(tokens.size() - tail));
  DiskCacheFileInfo info{.base = hasher.key(),
                         .pack = pack,
                         .known_version = true,
                         .tokens = static_cast<int64_t>(tokens.size()),
                         .bytes = disk_cache_file_bytes(saved),
                         .has_logits = !saved.logits.empty(),
                         .tail = {tokens.end() - static_cast<ptrdiff_t>(tail), tokens.end()},
                         .last_used_ms = now_ms};
  hasher.take(tokens.last(tail));
  info.key = hasher.key();
  Header header{.version = kVersion,
                .has_logits = info.has_logits ? 1u : 0u,
                .tokens = tokens.size(),
                .file_bytes = static_cast<uint64_t>(info.bytes),
                .hits = 0,
                .last_used_ms = now_ms};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  put(header.pack, pack);
  put(header.key, info.key);
  put(header.base, info.base);
  put(header.checksum, header_checksum(header));
  const SavedStateImage image(owner, saved);
  std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(&header, 1))};
  for (const std::span<const std::byte> part : image.parts()) parts.push_back(part);
  // Others on this machine have no business in what somebody has asked.
  FATHOM_TRY(write_file_atomically(path, parts, 0600));
  return info;
}

Result<DiskCacheFileInfo> examine_disk_cache_file(const std::string& path, const DiskCacheKey& key,
                                                  const DiskCacheKey& pack, int tail_tokens) {
  FATHOM_ASSIGN(const RandomAccessFile file, RandomAccessFile::open(path));
  FATHOM_ASSIGN(const Header header, read_header(file, key));
  DiskCacheFileInfo info{.key = key, .bytes = static_cast<int64_t>(file.size_bytes())};
  if (header.version != kVersion) return info;
  info.known_version = true;
  info.base = taken(header.base);
  info.pack = taken(header.pack);
  info.tokens = static_cast<int64_t>(header.tokens);
  info.has_logits = header.has_logits != 0;
  info.hits = header.hits;
  info.last_used_ms = header.last_used_ms;
  if (info.pack != pack) return info;
  const uint64_t tail = std::min<uint64_t>(header.tokens, static_cast<uint64_t>(tail_tokens));
  info.tail.resize(tail);
  FATHOM_TRY(file.read_at(sizeof header + SavedStateImage::kTokensOffset + 4 * (header.tokens - tail),
                          std::as_writable_bytes(std::span(info.tail))));
  return info;
}

Result<SavedState> read_disk_cache_file(const std::string& path, const DiskCacheKey& key,
                                        const SavedStateOwner& owner) {
  FATHOM_ASSIGN(const RandomAccessFile file, RandomAccessFile::open(path));
  FATHOM_ASSIGN(const Header header, read_header(file, key));
  if (header.version != kVersion)
    return Error::bad_pack("{}: entry of version {}, expected {}", path, header.version, kVersion);
  return read_saved_state_at(file, sizeof header, owner);
}

Result<void> write_disk_cache_usage(const std::string& path, const DiskCacheKey& key, uint64_t hits,
                                    int64_t last_used_ms) {
  FATHOM_ASSIGN(const RandomAccessFile file, RandomAccessFile::open(path));
  FATHOM_ASSIGN(const Header header, read_header(file, key));
  if (header.version != kVersion) return Error::bad_pack("{}: entry of version {}", path, header.version);
  // Read and written through two descriptors: what lies between can at worst count for the file that came then.
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return Error::io("{}: cannot open for writing: {}", path, std::strerror(errno));
  struct {
    uint64_t hits;
    int64_t last_used_ms;
  } const usage{hits, last_used_ms};
  const ssize_t wrote = ::pwrite(descriptor, &usage, sizeof usage, kUsageOffset);
  const int error = errno;
  ::close(descriptor);
  if (wrote != sizeof usage) return Error::io("{}: cannot write: {}", path, std::strerror(error));
  return {};
}

}  // namespace fathom
