// Any bytes as a saved state: refused, or a state that can be used. A checksum lets no mutation through, so
// the input is read twice: as it is, and with the checksum put right. The state inside is restored as well.
#include <cstdlib>
#include <cstring>

#include "base/sha256.h"
#include "engine/saved_state.h"
#include "model/sequence_state.h"
#include "ops/reference/backend.h"

namespace {

using namespace fathom;

constexpr int64_t kContextTokens = 64;

// Two layers, window 4, one source of two tokens a row.
StateShape small_shape() {
  StateShape shape{.layers = 2, .window = 4, .ring_slots = 6, .head_dim = 32, .index_dim = 32};
  shape.window_format = shape.compressed_format = shape.index_format = KvFormat::kF32;
  shape.window_row_bytes = shape.compressed_row_bytes = shape.index_row_bytes = 32 * 4;
  shape.sources = {{.layer = 1, .ratio = 2}};
  shape.source_of_layer = {-1, 0};
  shape.tail_rows = 8;
  shape.tail_row_floats = 4;
  return shape;
}

void use(SequenceState& state) {
  const auto bytes = state.serialise();
  if (!bytes.ok() || !state.restore(*bytes).ok()) std::abort();
  for (int64_t position = state.position(); position >= 0; --position) {
    if (state.can_rewind(position) != state.rewind(position).ok()) std::abort();
  }
}

void restore(std::span<const std::byte> bytes) {
  static reference::ReferenceBackend backend;
  static const auto state = SequenceState::make(small_shape(), backend, kContextTokens).value();
  if (state->restore(bytes).ok()) use(*state);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const SavedStateOwner owner{
      .fingerprint = {}, .vocab_size = 16, .context_tokens = kContextTokens, .state_bytes_max = 1 << 20};
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin, begin + size);
  restore(bytes);
  (void)parse_saved_state(bytes, "input", owner);
  if (size < 32) return 0;
  const auto digest = sha256(std::span(bytes).first(size - 32));
  std::memcpy(bytes.data() + size - 32, digest.data(), digest.size());
  const auto saved = parse_saved_state(bytes, "input", owner);
  if (!saved.ok()) return 0;
  for (const int32_t token : saved->tokens) {
    if (token < 0 || token >= owner.vocab_size) std::abort();
  }
  restore(saved->state);
  return 0;
}
