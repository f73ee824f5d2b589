#include "model/sequence_state.h"

#include <algorithm>
#include <cstring>

#include "model/engram_hash.h"

namespace fathom {

int64_t StateShape::ring_bytes() const {
  const int64_t open_slots = ring_slots - window + 2;
  return layers * ring_slots * window_row_bytes +
         static_cast<int64_t>(sources.size()) * open_slots * 2 * head_dim * 4;
}

int64_t StateShape::cache_bytes(int64_t capacity_tokens) const {
  int64_t bytes = 0;
  for (const Source& source : sources)
    bytes += (capacity_tokens / source.ratio) * (compressed_row_bytes + index_row_bytes);
  return bytes;
}

int64_t StateShape::tail_bytes(int64_t capacity_tokens) const {
  return std::min(tail_rows, capacity_tokens) * tail_row_floats * 4;
}

int64_t StateShape::rows_bytes(int64_t begin, int64_t end) const {
  int64_t bytes = (end - begin) * 4;
  for (const Source& source : sources)
    bytes += (end / source.ratio - begin / source.ratio) * (compressed_row_bytes + index_row_bytes);
  return bytes;
}

int64_t StateShape::windows_bytes() const { return layers * 8 + 8 + ring_bytes(); }

StateShape make_state_shape(const ModelConfig& config, Numerics numerics, int rewind_tokens) {
  StateShape shape;
  shape.layers = config.num_layers;
  shape.window = config.sliding_window;
  shape.ring_slots = config.sliding_window + rewind_tokens;
  shape.head_dim = config.head_dim;
  shape.index_dim = config.index_head_dim;
  if (numerics == Numerics::kExact)
    shape.window_format = shape.compressed_format = shape.index_format = KvFormat::kF32;
  shape.window_row_bytes = kv_row_bytes(shape.window_format, shape.head_dim);
  shape.compressed_row_bytes = kv_row_bytes(shape.compressed_format, shape.head_dim);
  shape.index_row_bytes = kv_row_bytes(shape.index_format, shape.index_dim);
  for (const int layer : config.kv_source_layer_ids)
    shape.sources.push_back({.layer = layer, .ratio = config.ratio(layer)});
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const int owner = config.ratio(layer) == 0 ? -1 : config.kv_source_of(layer);
    const auto found = std::find_if(shape.sources.begin(), shape.sources.end(),
                                    [&](const StateShape::Source& source) { return source.layer == owner; });
    shape.source_of_layer.push_back(
        found == shape.sources.end() ? -1 : static_cast<int>(found - shape.sources.begin()));
  }
  // The last decoder layer must see a full ring of rows; every layer below it a window more.
  const int decoder_layers = config.num_layers - config.encoder_layers();
  shape.tail_rows = shape.ring_slots + int64_t{shape.window - 1} * std::max(decoder_layers - 1, 0);
  shape.tail_row_floats = int64_t{config.hc_mult} * config.hidden_size + config.hc_mult;
  return shape;
}

namespace {

// Saved states hold whole rings: nothing of other memory or of an earlier text may be in them.
void clear(Backend& backend, const Buffer& buffer) {
  const std::vector<std::byte> zeros(static_cast<size_t>(buffer.size_bytes()));
  backend.upload(buffer.bytes(), zeros.data(), zeros.size());
}

}  // namespace

Result<std::unique_ptr<SequenceState>> SequenceState::make(const StateShape& shape, Backend& backend,
                                                           int64_t capacity_tokens) {
  if (capacity_tokens < 1) return Error::invalid("context of {} tokens, expected at least 1", capacity_tokens);
  std::unique_ptr<SequenceState> state(new SequenceState());
  state->shape_ = shape;
  state->backend_ = &backend;
  state->capacity_ = capacity_tokens;
  FATHOM_ASSIGN(state->rings_, Buffer::make(backend, shape.layers * shape.ring_slots * shape.window_row_bytes,
                                            "window rings"));
  FATHOM_ASSIGN(state->open_groups_,
                Buffer::make(backend,
                             static_cast<int64_t>(shape.sources.size()) * state->open_slots() * 2 *
                                 shape.head_dim * 4,
                             "open groups"));
  for (const StateShape::Source& source : shape.sources) {
    const int64_t rows = capacity_tokens / source.ratio;
    FATHOM_ASSIGN(Buffer compressed, Buffer::make(backend, rows * shape.compressed_row_bytes, "compressed rows"));
    FATHOM_ASSIGN(Buffer keys, Buffer::make(backend, rows * shape.index_row_bytes, "index keys"));
    state->compressed_.push_back(std::move(compressed));
    state->index_keys_.push_back(std::move(keys));
  }
  state->compressed_ids_.reserve(static_cast<size_t>(capacity_tokens));
  state->reset();
  return state;
}

std::byte* SequenceState::ring(int layer) const {
  return rings_.bytes() + layer * shape_.ring_slots * shape_.window_row_bytes;
}

float* SequenceState::open_values(int source, int64_t position) const {
  return open_groups_.floats() + ((source * open_slots() + position % open_slots()) * 2) * shape_.head_dim;
}

float* SequenceState::open_gates(int source, int64_t position) const {
  return open_values(source, position) + shape_.head_dim;
}

int64_t SequenceState::rows_at(int source, int64_t tokens) const {
  return tokens / shape_.sources[static_cast<size_t>(source)].ratio;
}

int64_t SequenceState::decoder_backlog() const {
  if (!decoder_pending()) return 0;
  if (decoder_catching_up()) return position_ - replay_begin_;
  return position_ - std::max(pending_begin_, position_ - tail_capacity());
}

Result<void> SequenceState::ensure_tail(Backend& backend) {
  if (tail_.bytes() != nullptr) return {};
  FATHOM_ASSIGN(tail_, Buffer::make(backend, shape_.tail_bytes(capacity_), "the tail of a prompt"));
  return {};
}

float* SequenceState::tail_row(int64_t position) const {
  return tail_.floats() + position % tail_capacity() * shape_.tail_row_floats;
}

void SequenceState::advance(std::span<const int32_t> tokens, std::span<const int32_t> token_map) {
  position_ += static_cast<int64_t>(tokens.size());
  for (const int32_t token : tokens)
    compressed_ids_.push_back(token_map.empty() ? token : token_map[static_cast<size_t>(token)]);
}

bool SequenceState::can_rewind(int64_t position) const {
  if (position < 0 || position > position_) return false;
  if (position == 0) return true;
  if (decoder_pending()) return false;
  if (position == position_) return true;
  const int64_t first_needed = std::max<int64_t>(0, position - (shape_.window - 1));
  for (const int64_t valid_from : ring_valid_from_)
    if (first_needed < std::max(valid_from, position_ - shape_.ring_slots)) return false;
  for (const StateShape::Source& source : shape_.sources)
    if (position % source.ratio != 0 && position - 1 < std::max(open_valid_from_, position_ - open_slots()))
      return false;
  return true;
}

Result<void> SequenceState::rewind(int64_t position) {
  if (!can_rewind(position))
    return Error::state("cannot go back from position {} to {}: the windows before it are no longer held",
                        position_, position);
  if (position == 0) {
    reset();
    return {};
  }
  // What the positions given up have overwritten stays lost, however often the state goes back.
  for (int64_t& valid_from : ring_valid_from_)
    valid_from = std::max(valid_from, position_ - shape_.ring_slots);
  open_valid_from_ = std::max(open_valid_from_, position_ - open_slots());
  position_ = position;
  std::fill(ring_end_.begin(), ring_end_.end(), position);
  compressed_ids_.resize(static_cast<size_t>(position));
  ahead_.reset();
  return {};
}

void SequenceState::reset() {
  position_ = 0;
  pending_begin_ = replay_begin_ = -1;
  ring_valid_from_.assign(static_cast<size_t>(shape_.layers), 0);
  ring_end_.assign(static_cast<size_t>(shape_.layers), 0);
  open_valid_from_ = 0;
  clear(*backend_, rings_);
  clear(*backend_, open_groups_);
  compressed_ids_.clear();
  tail_ = Buffer();
  ahead_.reset();
}

int64_t SequenceState::rewind_floor() const {
  int64_t floor = position_;
  while (floor > 0 && can_rewind(floor - 1)) --floor;
  return floor;
}

// ---- In two parts ----

void SequenceState::export_rows(int64_t begin, int64_t end, std::byte* out) const {
  FATHOM_CHECK(0 <= begin && begin <= end && end <= position_, "rows of {} to {} of {}", begin, end, position_);
  const auto id_bytes = static_cast<size_t>(end - begin) * 4;
  if (id_bytes > 0) std::memcpy(out, compressed_ids_.data() + begin, id_bytes);
  out += id_bytes;
  for (size_t source = 0; source < shape_.sources.size(); ++source) {
    const int64_t first = rows_at(static_cast<int>(source), begin);
    const int64_t rows = rows_at(static_cast<int>(source), end) - first;
    const auto get = [&](const Buffer& from, int64_t row_bytes) {
      if (rows > 0)
        backend_->download(out, from.bytes() + first * row_bytes, static_cast<size_t>(rows * row_bytes));
      out += rows * row_bytes;
    };
    get(compressed_[source], shape_.compressed_row_bytes);
    get(index_keys_[source], shape_.index_row_bytes);
  }
}

Result<std::vector<std::byte>> SequenceState::export_windows() const {
  if (decoder_pending())
    return Error::state("cannot save at position {}: the prompt is not evaluated to its end", position_);
  std::vector<std::byte> bytes(static_cast<size_t>(shape_.windows_bytes()));
  const size_t list_bytes = ring_valid_from_.size() * 8;
  std::byte* out = bytes.data();
  std::memcpy(out, ring_valid_from_.data(), list_bytes);
  std::memcpy(out + list_bytes, &open_valid_from_, 8);
  out += list_bytes + 8;
  backend_->download(out, rings_.bytes(), static_cast<size_t>(rings_.size_bytes()));
  out += rings_.size_bytes();
  backend_->download(out, open_groups_.bytes(), static_cast<size_t>(open_groups_.size_bytes()));
  return bytes;
}

Result<void> SequenceState::assemble(std::span<const RowsPiece> pieces, std::span<const std::byte> windows) {
  FATHOM_CHECK(static_cast<int64_t>(windows.size()) == shape_.windows_bytes());
  const int64_t position = pieces.empty() ? 0 : pieces.back().end;
  if (position > capacity_)
    return Error::context_full("a state of {} tokens, the context holds {}", position, capacity_);
  reset();
  compressed_ids_.resize(static_cast<size_t>(position));
  for (const RowsPiece& piece : pieces) {
    FATHOM_CHECK(piece.begin == position_, "a piece begins at {}, expected {}", piece.begin, position_);
    const std::byte* in = piece.bytes;
    const auto id_bytes = static_cast<size_t>(piece.end - piece.begin) * 4;
    if (id_bytes > 0) std::memcpy(compressed_ids_.data() + piece.begin, in, id_bytes);
    in += id_bytes;
    for (size_t source = 0; source < shape_.sources.size(); ++source) {
      const int64_t first = rows_at(static_cast<int>(source), piece.begin);
      const int64_t rows = rows_at(static_cast<int>(source), piece.end) - first;
      const auto put = [&](const Buffer& to, int64_t row_bytes) {
        if (rows > 0)
          backend_->upload(to.bytes() + first * row_bytes, in, static_cast<size_t>(rows * row_bytes));
        in += rows * row_bytes;
      };
      put(compressed_[source], shape_.compressed_row_bytes);
      put(index_keys_[source], shape_.index_row_bytes);
    }
    position_ = piece.end;
  }
  const size_t list_bytes = ring_valid_from_.size() * 8;
  const std::byte* in = windows.data();
  std::memcpy(ring_valid_from_.data(), in, list_bytes);
  std::memcpy(&open_valid_from_, in + list_bytes, 8);
  in += list_bytes + 8;
  backend_->upload(rings_.bytes(), in, static_cast<size_t>(rings_.size_bytes()));
  in += rings_.size_bytes();
  backend_->upload(open_groups_.bytes(), in, static_cast<size_t>(open_groups_.size_bytes()));
  std::fill(ring_end_.begin(), ring_end_.end(), position_);
  return {};
}

// ---- Bytes ----

namespace {

constexpr uint32_t kStateMagic = 0x51455346;  // "FSEQ"
constexpr uint32_t kStateVersion = 1;

struct StateHeader {
  uint32_t magic;
  uint32_t version;
  int32_t layers;
  int32_t window;
  int32_t ring_slots;
  int32_t head_dim;
  int32_t index_dim;
  uint8_t window_format;
  uint8_t compressed_format;
  uint8_t index_format;
  uint8_t sources;
  int64_t position;
  int64_t payload_bytes;  // all that follows the header
};
static_assert(sizeof(StateHeader) == 48);

StateHeader header_of(const StateShape& shape, int64_t position) {
  return {.magic = kStateMagic,
          .version = kStateVersion,
          .layers = shape.layers,
          .window = shape.window,
          .ring_slots = shape.ring_slots,
          .head_dim = shape.head_dim,
          .index_dim = shape.index_dim,
          .window_format = static_cast<uint8_t>(shape.window_format),
          .compressed_format = static_cast<uint8_t>(shape.compressed_format),
          .index_format = static_cast<uint8_t>(shape.index_format),
          .sources = static_cast<uint8_t>(shape.sources.size()),
          .position = position,
          .payload_bytes = 0};
}

int64_t payload_bytes(const StateShape& shape, int64_t position) {
  return position * 4 + shape.layers * 8 + 8 + shape.ring_bytes() + shape.cache_bytes(position);
}

}  // namespace

int64_t SequenceState::serialised_bytes() const {
  return static_cast<int64_t>(sizeof(StateHeader)) + payload_bytes(shape_, position_);
}

Result<std::vector<std::byte>> SequenceState::serialise(std::vector<std::byte> room) const {
  if (decoder_pending())
    return Error::state("cannot save at position {}: the prompt is not evaluated to its end", position_);
  StateHeader header = header_of(shape_, position_);
  header.payload_bytes = payload_bytes(shape_, position_);
  std::vector<std::byte> bytes = std::move(room);
  bytes.resize(static_cast<size_t>(serialised_bytes()));
  std::byte* out = bytes.data();
  const auto put = [&](const void* from, int64_t count) {
    if (count > 0) std::memcpy(out, from, static_cast<size_t>(count));
    out += count;
  };
  const auto put_buffer = [&](const Buffer& from, int64_t count) {
    backend_->download(out, from.bytes(), static_cast<size_t>(count));
    out += count;
  };
  put(&header, sizeof header);
  put(compressed_ids_.data(), position_ * 4);
  put(ring_valid_from_.data(), shape_.layers * 8);
  put(&open_valid_from_, sizeof open_valid_from_);
  put_buffer(rings_, rings_.size_bytes());
  put_buffer(open_groups_, open_groups_.size_bytes());
  for (size_t source = 0; source < shape_.sources.size(); ++source) {
    const int64_t rows = rows_at(static_cast<int>(source), position_);
    put_buffer(compressed_[source], rows * shape_.compressed_row_bytes);
    put_buffer(index_keys_[source], rows * shape_.index_row_bytes);
  }
  FATHOM_CHECK(out == bytes.data() + bytes.size());
  return bytes;
}

Result<void> SequenceState::restore(std::span<const std::byte> bytes) {
  StateHeader header;
  if (bytes.size() < sizeof header)
    return Error::bad_pack("saved state: {} bytes, expected at least {}", bytes.size(), sizeof header);
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kStateMagic)
    return Error::bad_pack("saved state: magic {:#x}, expected {:#x}", header.magic, kStateMagic);
  if (header.version != kStateVersion)
    return Error::bad_pack("saved state: version {}, expected {}", header.version, kStateVersion);
  StateHeader expected = header_of(shape_, header.position);
  expected.payload_bytes = header.payload_bytes;
  if (std::memcmp(&expected, &header, sizeof header) != 0)
    return Error::bad_pack("saved state: made by another model or with other numerics "
                           "({} layers, window {}, ring {}, expected {}, {}, {})",
                           header.layers, header.window, header.ring_slots, shape_.layers, shape_.window,
                           shape_.ring_slots);
  if (header.position < 0 || header.position > capacity_)
    return Error::context_full("saved state: {} tokens, the context holds {}", header.position, capacity_);
  const int64_t payload = payload_bytes(shape_, header.position);
  if (header.payload_bytes != payload || bytes.size() != sizeof header + static_cast<size_t>(payload))
    return Error::bad_pack("saved state: {} bytes for {} tokens, expected {}", bytes.size(), header.position,
                           sizeof header + static_cast<size_t>(payload));

  const std::byte* in = bytes.data() + sizeof header;
  std::vector<int32_t> ids(static_cast<size_t>(header.position));
  if (!ids.empty()) std::memcpy(ids.data(), in, ids.size() * 4);
  in += ids.size() * 4;
  std::vector<int64_t> valid_from(static_cast<size_t>(shape_.layers));
  std::memcpy(valid_from.data(), in, valid_from.size() * 8);
  in += valid_from.size() * 8;
  int64_t open_valid_from = 0;
  std::memcpy(&open_valid_from, in, sizeof open_valid_from);
  in += sizeof open_valid_from;
  if (open_valid_from < 0 || open_valid_from > header.position)
    return Error::bad_pack("saved state: open groups begin at {}, expected 0..{}", open_valid_from,
                           header.position);
  for (const int64_t position : valid_from)
    if (position < 0 || position > header.position)
      return Error::bad_pack("saved state: a window begins at {}, expected 0..{}", position, header.position);
  for (const int32_t id : ids)
    if (id < kEngramDead) return Error::bad_pack("saved state: compressed id {}", id);

  const auto take = [&](const Buffer& to, int64_t count) {
    backend_->upload(to.bytes(), in, static_cast<size_t>(count));
    in += count;
  };
  take(rings_, rings_.size_bytes());
  take(open_groups_, open_groups_.size_bytes());
  for (size_t source = 0; source < shape_.sources.size(); ++source) {
    const int64_t rows = rows_at(static_cast<int>(source), header.position);
    take(compressed_[source], rows * shape_.compressed_row_bytes);
    take(index_keys_[source], rows * shape_.index_row_bytes);
  }
  position_ = header.position;
  pending_begin_ = replay_begin_ = -1;
  compressed_ids_ = std::move(ids);
  ring_valid_from_ = std::move(valid_from);
  open_valid_from_ = open_valid_from;
  std::fill(ring_end_.begin(), ring_end_.end(), position_);
  ahead_.reset();
  return {};
}

}  // namespace fathom
