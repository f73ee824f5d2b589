// The conversation of `fathom chat` and `fathom run --chat`, in the JSON that the chat format reads.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fathom::cli {

class Conversation {
 public:
  Conversation();
  ~Conversation();

  /// off, low, high, max, or a number from 1 to 100. False: none of these.
  bool set_thinking(const std::string& level);
  std::string thinking() const;
  /// Empty: no system message.
  void set_system(const std::string& text);
  std::string system() const;

  void add_user(const std::string& text);
  /// A message as fathom_parser_message() gives it.
  void add_answer(const std::string& message_json);
  void drop_last();
  /// Forgets all messages but the system message.
  void reset();
  size_t message_count() const;

  std::string json() const;
  /// Indented, for a file.
  std::string file_text() const;
  /// Takes over what file_text() wrote, or any conversation that `fathom chat-template` reads. Throws
  /// Failure, then nothing has changed.
  void load(const std::string& text);

 private:
  std::unique_ptr<nlohmann::ordered_json> root_;  // {"thinking", "reasoning_effort", "messages", ...}
};

}  // namespace fathom::cli
