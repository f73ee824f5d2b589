// What the messages and the responses APIs share: pieces of a conversation in the shape of the chat API, and what
// is told of tokens beside the events of a stream.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/answer.h"
#include "server/generation_fields.h"
#include "server/json_fields.h"

namespace fathom {

/// A member that must be a string.
Result<std::string> required_text(const Fields& fields, const char* name);
/// A member that must be the name of a tool: not empty, nothing in it that could not be written in a call.
Result<std::string> required_tool_name(const Fields& fields);

/// {"type": "function", "function": {"name", "description", "parameters", "strict"}} of a tool whose members are
/// not wrapped; `schema_name` is what the API calls the schema of its arguments. Without a schema: no arguments.
Result<Json> chat_tool(const Fields& tool, const char* schema_name);
/// {"type": "text", "text"} of a message's content.
Json text_block(std::string text);
/// An entry of "tool_calls"; an empty namespace is left out.
Json chat_call(std::string id, std::string name, std::string namespace_name, Json arguments);
/// Adds an assistant's message: what follows another assistant's message belongs to the same turn.
void append_assistant(Json& messages, Json message);

/// The members of a request but for those named.
Json members_beside(const Json& request, std::initializer_list<const char*> names);
/// How to generate, for an API that gives one answer.
Result<GenerationFields> read_one_answer_fields(const Json& members, const GenerationDefaults& defaults,
                                                int32_t vocab_size);
/// Errors name members of the chat API that a request was converted to; this gives them the client's own names.
Error with_client_names(Error error,
                        std::initializer_list<std::pair<std::string_view, std::string_view>> chat_and_own);

/// "name" or "namespace::name".
std::string qualified_name(std::string_view namespace_name, std::string_view name);
/// A complete call's arguments as an object.
Json arguments_object(const std::string& arguments);

/// Tokens on their way into a stream: told with the first event after them, since not every token brings one.
class TokenNotes {
 public:
  TokenNotes(const GenerationFields& fields, const Tokenizer& tokenizer)
      : fields_(fields), tokenizer_(tokenizer) {}
  void add(const AnswerToken& token);
  bool empty() const { return waiting_.empty(); }
  /// Their ids as an array; null if nobody asked for ids.
  Json ids() const;
  /// Logprobs of those that are text, in the chat API's shape.
  Json logprobs() const;
  void clear() { waiting_.clear(); }

 private:
  const GenerationFields& fields_;
  const Tokenizer& tokenizer_;
  std::vector<AnswerToken> waiting_;
};

}  // namespace fathom
