// Renders a conversation as the prompt that DeepSeek-V4.1 was trained on.
//
// The prompt is a list of segments: a control token, or plain text. Only this file decides what is a
// control token; text from users, tools and earlier answers is never searched for one, so "<think>" typed by
// a user stays seven characters. Rules and their origin: docs/formats/chat.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_message.h"

namespace fathom {

class Tokenizer;

struct PromptSegment {
  bool is_control = false;
  std::string text;  // the spelling of exactly one control token, or text to encode as it is
  bool operator==(const PromptSegment&) const = default;
};

struct RenderedPrompt {
  std::vector<PromptSegment> segments;  // neighbouring texts are joined: cutting them would change tokens
  std::vector<std::string> image_urls;  // one for each image control token, in order
  /// How many leading segments will still be there, unchanged, when the answer and the next user message
  /// are appended. Less than all of them when the reasoning of this turn will be dropped later.
  size_t stable_segments = 0;
  bool starts_in_thinking = false;  // the completion begins with reasoning
};

/// Fails (kInvalidArgument) for an empty conversation, an effort outside 1..100, and tool names or schemas
/// that are malformed. A task on a user message that directly follows another one without a task has no
/// effect, as in the published encoder: the two become one message.
Result<RenderedPrompt> render_conversation(const Conversation& conversation);

/// Fails (kUnsupported) when the prompt needs a control token that the vocabulary lacks.
Result<std::vector<int32_t>> encode_prompt(const RenderedPrompt& prompt, const Tokenizer& tokenizer);

/// Tokens of the segments that stay (RenderedPrompt::stable_segments); a prefix of encode_prompt().
Result<size_t> stable_prefix_tokens(const RenderedPrompt& prompt, const Tokenizer& tokenizer);

/// The prompt for people to read. Control tokens and text that looks like them cannot be told apart in it,
/// so it is never encoded again.
std::string prompt_text(const RenderedPrompt& prompt);

}  // namespace fathom
