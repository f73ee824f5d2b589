// A model ready to run: its weights, its Engram tables and the memory of a step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "model/config.h"
#include "model/engram_reader.h"
#include "model/pack.h"
#include "model/sequence_state.h"
#include "ops/backend.h"

namespace fathom {

/// What prefill does with layers whose output nobody will read; docs/model/encoder_decoder.md.
enum class CedMode {
  kExact,    // the decoder runs on the triangular tail: equal to kOff to the bit
  kBounded,  // the decoder runs on the last window of rows, which see nothing before it: an approximation
  kOff,      // every layer runs on every row
};

enum class LogitRows { kNone, kLast, kAll };

/// Consecutive new tokens of one sequence. A step has one or more, of different sequences.
/// Without tokens: the decoder goes on with rows that a prompt's chunks have put aside, in portions, so that no
/// step is long; the state must be pending, is_last_chunk true. Logits come with the portion that ends it.
struct Segment {
  SequenceState* state = nullptr;
  std::span<const int32_t> tokens;  // positions state->position() and on
  /// False for all but the last chunk of a prompt: then only the encoder runs, and `logits` must be kNone.
  bool is_last_chunk = true;
  /// kAll runs every layer on every row; use it for all chunks of the prompt or for none.
  LogitRows logits = LogitRows::kLast;
  float* logits_out = nullptr;  // kLast [vocab], kAll [tokens, vocab]; the caller's memory
  /// Tokens that will come next, if known: their Engram rows are fetched during this step.
  std::span<const int32_t> next_tokens;
  int64_t decoder_rows_max = 0;  // without tokens only: rows of this portion, at least 1
};

/// Asked before each layer of a step; true ends the step.
using StopFn = std::function<bool()>;

/// What the forward pass shows at named points to whoever asks; tests use it. `data` is [rows, width], in
/// memory of the backend, and may be changed where the event says so in docs/tour.md.
struct ProbeEvent {
  std::string_view name;
  int layer;
  void* data;
  int64_t rows;
  int64_t width;
  int64_t first_position;  // of the first segment
};
using Probe = std::function<void(const ProbeEvent&)>;

struct ModelOptions {
  Numerics numerics = Numerics::kOfficial;
  CedMode ced = CedMode::kExact;
  int step_rows = 512;      // most rows of one step
  int rewind_tokens = 32;   // positions a state can take back without anything saved
  /// Compressed id of each token; needed where the pack has Engram tables but no token map of its own.
  std::vector<int32_t> engram_token_map;
  EngramReaderOptions engram;
};

/// One thread at a time runs a Model; it may serve any number of states.
class Model {
 public:
  /// Takes the pack. Checks that all tensors are there, have the right shapes and encodings the backend can
  /// read. Copies small tensors only; matrices are views, read through once for values that are not finite
  /// (routed experts when they are first used).
  static Result<std::unique_ptr<Model>> load(Pack pack, Backend& backend, ModelOptions options,
                                             const ProgressFn& progress = {});
  ~Model();

  const Pack& pack() const;
  const ModelConfig& config() const;
  const ModelOptions& options() const;
  const StateShape& state_shape() const;
  /// Identifies the weights: saved states carry it and other models refuse them.
  const std::array<uint8_t, 32>& fingerprint() const;

  Result<std::unique_ptr<SequenceState>> new_state(int64_t capacity_tokens);

  /// Runs one step: at most step_rows rows over all segments. Arguments are checked before anything changes:
  /// kContextFull, kInvalidArgument (token id out of range), kUnsupported (image tokens), kState. Errors while
  /// it runs leave the states of the step empty: kIo (Engram rows), kBadPack (an expert with unusable weights,
  /// logits that are not finite), kNoMemory, kCancelled (`stop` said so).
  Result<void> run(std::span<const Segment> segments, const StopFn& stop = {});

  void set_probe(Probe probe);
  EngramReader::Statistics engram_statistics() const;

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Bytes of the buffers of a step, which a Model allocates when it is loaded.
int64_t step_scratch_bytes(const ModelConfig& config, const StateShape& shape, int step_rows);
/// What steps give to operations, for the backend's own working memory.
WorkShape work_shape(const ModelConfig& config, int step_rows, int64_t context_tokens);

}  // namespace fathom
