#include "engine/saved_state.h"

#include <bit>
#include <cstring>

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

}  // namespace

Result<void> write_saved_state(const std::string& path, const SavedStateOwner& owner,
                               const SavedState& saved) {
  Header header{.magic = {},
                .version = kVersion,
                .numerics = numerics_id(owner.numerics),
                .fingerprint = {},
                .tokens = saved.tokens.size(),
                .logits = saved.logits.size(),
                .state_bytes = saved.state.size()};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::memcpy(header.fingerprint, owner.fingerprint.data(), owner.fingerprint.size());
  std::array<std::span<const std::byte>, 5> parts = {std::as_bytes(std::span(&header, 1)),
                                                     std::as_bytes(std::span(saved.tokens)),
                                                     std::as_bytes(std::span(saved.logits)),
                                                     std::span<const std::byte>(saved.state),
                                                     {}};
  Sha256 hash;
  for (const std::span<const std::byte> part : parts) hash.update(part);
  const std::array<uint8_t, 32> digest = hash.finish();
  parts[4] = std::as_bytes(std::span(digest));
  return write_file_atomically(path, parts);
}

Result<SavedState> parse_saved_state(std::span<const std::byte> bytes, std::string_view where,
                                     const SavedStateOwner& owner) {
  if (bytes.size() < sizeof(Header) + kDigestBytes)
    return Error::bad_pack("{}: {} bytes, expected at least {}", where, bytes.size(),
                           sizeof(Header) + kDigestBytes);
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  FATHOM_TRY(check_header(header, bytes.size(), where, owner));
  const std::array<uint8_t, 32> digest = sha256(bytes.first(bytes.size() - kDigestBytes));
  if (std::memcmp(digest.data(), bytes.data() + bytes.size() - kDigestBytes, kDigestBytes) != 0)
    return Error::bad_pack("{}: damaged: its checksum does not match", where);
  FATHOM_TRY(check_owner(header, where, owner));

  SavedState saved;
  saved.tokens.resize(header.tokens);
  saved.logits.resize(header.logits);
  saved.state.resize(header.state_bytes);
  const std::byte* from = bytes.data() + sizeof header;
  const auto take = [&](std::span<std::byte> to) {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
    from += to.size();
  };
  take(std::as_writable_bytes(std::span(saved.tokens)));
  take(std::as_writable_bytes(std::span(saved.logits)));
  take(saved.state);
  for (size_t position = 0; position < saved.tokens.size(); ++position) {
    const int32_t id = saved.tokens[position];
    if (id < 0 || id >= owner.vocab_size)
      return Error::bad_pack("{}: token {} at position {}, expected 0 to {}", where, id, position,
                             owner.vocab_size - 1);
  }
  return saved;
}

Result<SavedState> read_saved_state(const std::string& path, const SavedStateOwner& owner) {
  FATHOM_ASSIGN(const RandomAccessFile file, RandomAccessFile::open(path));
  Header header;
  if (file.size_bytes() < sizeof header + kDigestBytes)
    return Error::bad_pack("{}: {} bytes, expected at least {}", path, file.size_bytes(),
                           sizeof header + kDigestBytes);
  FATHOM_TRY(file.read_at(0, std::as_writable_bytes(std::span(&header, 1))));
  FATHOM_TRY(check_header(header, file.size_bytes(), path, owner));
  std::vector<std::byte> bytes(file.size_bytes());
  FATHOM_TRY(file.read_at(0, bytes));
  return parse_saved_state(bytes, path, owner);
}

}  // namespace fathom
