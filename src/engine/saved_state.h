// A session's tokens, logits and state as a value, and as a file; docs/formats/saved_state.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "ops/ops.h"

namespace fathom {

struct SavedState {
  std::vector<int32_t> tokens;
  std::vector<float> logits;     // of the token after the last; empty: there were none
  std::vector<std::byte> state;  // SequenceState::serialise()

  size_t bytes() const { return tokens.size() * 4 + logits.size() * 4 + state.size(); }
};

/// Whose states may be read, and how large they can be.
struct SavedStateOwner {
  std::array<uint8_t, 32> fingerprint{};  // Model::fingerprint()
  Numerics numerics = Numerics::kOfficial;
  int32_t vocab_size = 0;
  int64_t context_tokens = 0;
  int64_t state_bytes_max = 0;
};

/// Writes beside `path` and renames: an existing file stays whole until the new one is.
Result<void> write_saved_state(const std::string& path, const SavedStateOwner& owner,
                               const SavedState& saved);

/// Refuses (kBadPack) other versions, other models, other numerics, and files that are truncated, have bytes
/// too many or any bit changed; kContextFull when there are more tokens than the context holds. Nothing of
/// the size that a damaged header claims is allocated before it has been compared with the file's.
Result<SavedState> read_saved_state(const std::string& path, const SavedStateOwner& owner);
/// The same from memory; `where` names it in errors.
Result<SavedState> parse_saved_state(std::span<const std::byte> bytes, std::string_view where,
                                     const SavedStateOwner& owner);

/// For formats that hold a saved state among other things: its bytes, in parts that point into `saved`, which
/// must live longer.
class SavedStateImage {
 public:
  SavedStateImage(const SavedStateOwner& owner, const SavedState& saved);
  SavedStateImage(const SavedStateImage&) = delete;
  SavedStateImage& operator=(const SavedStateImage&) = delete;
  std::array<std::span<const std::byte>, 5> parts() const;
  static uint64_t bytes(const SavedState& saved);
  static constexpr uint64_t kTokensOffset = 72;  // where the token ids begin

 private:
  const SavedState& saved_;
  std::array<std::byte, kTokensOffset> header_;
  std::array<uint8_t, 32> digest_;
};
/// As read_saved_state(), from `offset_bytes` to the end of an open file.
Result<SavedState> read_saved_state_at(const RandomAccessFile& file, uint64_t offset_bytes,
                                       const SavedStateOwner& owner);

}  // namespace fathom
