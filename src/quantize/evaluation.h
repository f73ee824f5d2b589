// Runs a model over a text, beside another model or stored predictions. docs/eval.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/session.h"
#include "quantize/quality.h"
#include "quantize/reference_logits.h"

namespace fathom {

struct WindowOptions {
  int64_t context_tokens = 2048;  // most tokens of a window, the one in front included
  int64_t stride_tokens = 0;      // from window to window; 0: each begins where the last one ends
  int32_t bos_token = -1;  // begins a document, and is put before windows that begin elsewhere; -1: none
};

/// Tokens [begin, end) of a text, evaluated from an empty context. Those from first_target on are predicted;
/// the ones before are context that an earlier window has predicted.
struct TextWindow {
  size_t begin = 0;
  size_t end = 0;
  size_t first_target = 0;
  bool has_bos_before = false;
  int64_t targets() const { return static_cast<int64_t>(end - first_target); }
};

/// A text may hold several documents, each begun by a BOS token; no window reaches over such a start. Every
/// token is predicted once, except document starts and, where there is no BOS token, starts of windows.
Result<std::vector<TextWindow>> cut_windows(std::span<const int32_t> ids, const WindowOptions& options);

/// Identifies token ids and windows.
std::array<uint8_t, 32> text_fingerprint(std::span<const int32_t> ids, std::span<const TextWindow> windows);

struct EvaluationOptions {
  WindowOptions windows;
  Session* reference = nullptr;             // another model, run side by side
  const ReferenceReader* stored = nullptr;  // or its stored predictions
  std::string save_path;                    // empty: the predictions are not kept
  ProgressFn progress;                      // "evaluate", "tokens"
};

/// Begins the sessions anew; both contexts must hold a window. At most Session::evaluate_rows() rows of
/// logits are held of each model. Errors: kInvalidArgument (nothing to predict; vocabularies differ; a file
/// of another text), those of the sessions, kCancelled.
Result<Quality> evaluate_text(Session& session, std::span<const int32_t> ids,
                              const EvaluationOptions& options);

}  // namespace fathom
