#include "engine/saved_state.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/file.h"
#include "base/sha256.h"

namespace fathom {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

constexpr char kMagic[8] = {'F', 'T', 'H', 'M', 'S', 'T', 'A', 'T'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kDigestBytes = 32;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t numerics;  // 0 official, 1 exact
  uint8_t fingerprint[32];
  uint64_t tokens;
  uint64_t logits;
  uint64_t state_bytes;
};
static_assert(sizeof(Header) == 72);

using ReadFn = std::function<Result<void>(uint64_t offset_bytes, std::span<std::byte> out)>;

uint32_t numerics_id(Numerics numerics) { return numerics == Numerics::kExact ? 1 : 0; }

// Everything that can be said without the rest of the file.
Result<void> check_header(const Header& header, uint64_t file_bytes, std::string_view where,
                          const SavedStateOwner& owner) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return Error::bad_pack("{}: not a saved state: expected it to begin with FTHMSTAT", where);
  if (header.version != kVersion)
    return Error::bad_pack("{}: saved state of version {}, expected {}", where, header.version, kVersion);
  // Each count is below the file's size, so their sum cannot overflow.
  if (header.tokens > file_bytes || header.logits > file_bytes || header.state_bytes > file_bytes)
    return Error::bad_pack("{}: truncated or damaged: {} bytes are too few for its {} tokens", where,
                           file_bytes, header.tokens);
  const uint64_t expected =
      sizeof(Header) + 4 * (header.tokens + header.logits) + header.state_bytes + kDigestBytes;
  if (file_bytes != expected)
    return Error::bad_pack("{}: truncated or damaged: expected {} bytes, found {}", where, expected,
                           file_bytes);
  const auto vocab = static_cast<uint64_t>(owner.vocab_size);
  if (header.logits != 0 && header.logits != vocab)
    return Error::bad_pack("{}: {} logits, expected {}: saved by another model", where, header.logits, vocab);
  if (header.tokens > static_cast<uint64_t>(owner.context_tokens))
    return Error::context_full("{}: {} tokens, the context holds {}", where, header.tokens,
                               owner.context_tokens);
  if (header.state_bytes > static_cast<uint64_t>(owner.state_bytes_max))
    return Error::bad_pack("{}: a state of {} bytes, expected at most {}: saved by another model", where,
                           header.state_bytes, owner.state_bytes_max);
  return {};
}

// Only after the checksum: a flipped bit must not be reported as another model.
Result<void> check_owner(const Header& header, std::string_view where, const SavedStateOwner& owner) {
  if (std::memcmp(header.fingerprint, owner.fingerprint.data(), owner.fingerprint.size()) != 0)
    return Error::bad_pack("{}: saved by another model: expected fingerprint {}, found {}", where,
                           hex_string(std::span(owner.fingerprint).first(8)),
                           hex_string(std::span(header.fingerprint).first(8)));
  if (header.numerics != numerics_id(owner.numerics))
    return Error::bad_pack("{}: saved with numerics {}, expected {} (0 official, 1 exact)", where,
                           header.numerics, numerics_id(owner.numerics));
  return {};
}

// Into its place, and through the hash piece by piece, while a piece is still in the cache.
Result<void> read_hashed(const ReadFn& read, uint64_t& offset_bytes, std::span<std::byte> to, Sha256& hash) {
  constexpr size_t kPieceBytes = size_t{1} << 18;
  while (!to.empty()) {
    const std::span<std::byte> piece = to.first(std::min(to.size(), kPieceBytes));
    FATHOM_TRY(read(offset_bytes, piece));
    hash.update(piece);
    offset_bytes += piece.size();
    to = to.subspan(piece.size());
  }
  return {};
}

Result<SavedState> read_parts(const ReadFn& read, uint64_t bytes, std::string_view where,
                              const SavedStateOwner& owner) {
  Header header;
  if (bytes < sizeof header + kDigestBytes)
    return Error::bad_pack("{}: {} bytes, expected at least {}", where, bytes, sizeof header + kDigestBytes);
  FATHOM_TRY(read(0, std::as_writable_bytes(std::span(&header, 1))));
  FATHOM_TRY(check_header(header, bytes, where, owner));
  Sha256 hash;
  hash.update(std::as_bytes(std::span(&header, 1)));
  SavedState saved;
  saved.tokens.resize(header.tokens);
  saved.logits.resize(header.logits);
  saved.state.resize(header.state_bytes);
  uint64_t offset_bytes = sizeof header;
  FATHOM_TRY(read_hashed(read, offset_bytes, std::as_writable_bytes(std::span(saved.tokens)), hash));
  FATHOM_TRY(read_hashed(read, offset_bytes, std::as_writable_bytes(std::span(saved.logits)), hash));
  FATHOM_TRY(read_hashed(read, offset_bytes, saved.state, hash));
  std::array<uint8_t, kDigestBytes> digest;
  FATHOM_TRY(read(offset_bytes, std::as_writable_bytes(std::span(digest))));
  if (digest != hash.finish())
    return Error::bad_pack("{}: damaged: its checksum does not match", where);
  FATHOM_TRY(check_owner(header, where, owner));
  for (size_t position = 0; position < saved.tokens.size(); ++position) {
    const int32_t id = saved.tokens[position];
    if (id < 0 || id >= owner.vocab_size)
      return Error::bad_pack("{}: token {} at position {}, expected 0 to {}", where, id, position,
                             owner.vocab_size - 1);
  }
  return saved;
}

}  // namespace

SavedStateImage::SavedStateImage(const SavedStateOwner& owner, const SavedState& saved) : saved_(saved) {
  static_assert(sizeof(Header) == kTokensOffset);
  Header header{.magic = {},
                .version = kVersion,
                .numerics = numerics_id(owner.numerics),
                .fingerprint = {},
                .tokens = saved.tokens.size(),
                .logits = saved.logits.size(),
                .state_bytes = saved.state.size()};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::memcpy(header.fingerprint, owner.fingerprint.data(), owner.fingerprint.size());
  std::memcpy(header_.data(), &header, sizeof header);
  Sha256 hash;
  const auto all = parts();
  for (const std::span<const std::byte> part : std::span(all).first(4)) hash.update(part);
  digest_ = hash.finish();
}

std::array<std::span<const std::byte>, 5> SavedStateImage::parts() const {
  return {std::span<const std::byte>(header_), std::as_bytes(std::span(saved_.tokens)),
          std::as_bytes(std::span(saved_.logits)), std::span<const std::byte>(saved_.state),
          std::as_bytes(std::span(digest_))};
}

uint64_t SavedStateImage::bytes(const SavedState& saved) {
  return sizeof(Header) + saved.bytes() + kDigestBytes;
}

Result<void> write_saved_state(const std::string& path, const SavedStateOwner& owner,
                               const SavedState& saved) {
  const SavedStateImage image(owner, saved);
  return write_file_atomically(path, image.parts());
}

Result<SavedState> parse_saved_state(std::span<const std::byte> bytes, std::string_view where,
                                     const SavedStateOwner& owner) {
  const auto read = [bytes](uint64_t offset_bytes, std::span<std::byte> out) -> Result<void> {
    if (!out.empty()) std::memcpy(out.data(), bytes.data() + offset_bytes, out.size());
    return {};
  };
  return read_parts(read, bytes.size(), where, owner);
}

Result<SavedState> read_saved_state_at(const RandomAccessFile& file, uint64_t offset_bytes,
                                       const SavedStateOwner& owner) {
  const auto read = [&](uint64_t offset, std::span<std::byte> out) {
    return file.read_at(offset_bytes + offset, out);
  };
  const uint64_t bytes = file.size_bytes() - std::min(offset_bytes, file.size_bytes());
  return read_parts(read, bytes, file.path(), owner);
}

Result<SavedState> read_saved_state(const std::string& path, const SavedStateOwner& owner) {
  FATHOM_ASSIGN(const RandomAccessFile file, RandomAccessFile::open(path));
  return read_saved_state_at(file, 0, owner);
}

}  // namespace fathom
