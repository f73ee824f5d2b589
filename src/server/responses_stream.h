// An answer as the output items of the responses API, and the events that tell of them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/finish.h"
#include "server/json_fields.h"

namespace fathom {

struct ResponseOutputOptions {
  std::string key;                     // the response's own part of its name; items' names are made of it
  std::set<std::string> custom_tools;  // qualified names
  bool encrypted_reasoning = false;
};

/// Turns what an answer brings into items. One is open at a time: it is done before another is added.
class ResponseOutput {
 public:
  /// Gets events in order, without their sequence numbers; `type` names each.
  using Emit = std::function<void(Json event)>;

  ResponseOutput(ResponseOutputOptions options, Emit emit)
      : options_(std::move(options)), emit_(std::move(emit)) {}

  /// `logprobs`: of the tokens that an event of content tells.
  void take(const ChatEvent& event, Json logprobs);
  /// Ends the open item; is_whole: nothing cut the answer.
  void close(bool is_whole);
  /// All items as they are now, the open one with what it has so far.
  Json items() const;

 private:
  enum class Kind : uint8_t { kNone, kReasoning, kMessage, kCall, kCustomCall };
  void open(Kind kind, const char* prefix, Json item);
  void open_part(Json part);
  void open_call(const ChatEvent& event);
  void add_text(const ChatEvent& event, const char* type, Json logprobs);
  void finish(const char* status);
  void finish_text();
  void finish_call(bool is_whole);
  /// An event about the open item.
  Json event(const char* type) const;
  Json part() const;
  Json current() const;

  const ResponseOutputOptions options_;
  const Emit emit_;
  Kind open_ = Kind::kNone;
  int index_ = -1;        // of the open item, or of the last one
  Json item_;             // the open one, without its text
  std::string text_;      // its text, or its arguments
  Json logprobs_ = Json::array();
  Json done_ = Json::array();
};

/// "completed", "incomplete" or "failed".
std::string_view response_status(const AnswerEnd& end);
/// {"reason": ...} in the API's two words, of an incomplete response; finish_details say it exactly.
Json incomplete_details(const AnswerEnd& end, LoopFinishReason loop_reason);
Json response_usage(const GenerationUsage& usage);

}  // namespace fathom
