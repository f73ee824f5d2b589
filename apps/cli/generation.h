// The loop that both `run` and `chat` are about: hold the prompt, choose a token, show it, evaluate it.
#pragma once

#include <functional>
#include <span>

#include "fathom/fathom.h"
#include "output.h"
#include "progress.h"

namespace fathom::cli {

enum class EndReason { kEos, kStopString, kLength, kContextFull, kInterrupted, kOutputClosed };
const char* end_reason_name(EndReason reason);  // "end of sequence", "stop string", ...

struct Generation {
  fathom_sync_result sync{};
  double prefill_seconds = 0;
  double first_token_seconds = 0;  // from the start of the prefill until the first token was chosen
  double decode_seconds = 0;       // of decode_steps
  int64_t tokens = 0;              // that were handed out
  int64_t decode_steps = 0;        // the first token comes out of the prefill
  int32_t end_id = -1;             // the token that ended the text, which was not handed out
  EndReason reason = EndReason::kLength;

  double prefill_speed() const;
  double decode_speed() const;
};

enum class Verdict { kGoOn, kStopString, kOutputClosed };
/// Gets each token before it is evaluated; the session still holds the logits it was chosen from.
using TakeToken = std::function<Verdict(int32_t id)>;

struct GenerationRequest {
  fathom_session* session = nullptr;
  const fathom_tokenizer* tokenizer = nullptr;
  std::span<const int32_t> prompt;
  int64_t max_tokens = -1;  // -1: until the context is full
  fathom_sampling sampling{};
};

/// Throws Failure. After an interruption the session is whole and can go on.
Generation generate(const GenerationRequest& request, Progress& progress, const TakeToken& take);

/// A few lines for people.
void print_statistics(Output& output, const Generation& generation);

}  // namespace fathom::cli
