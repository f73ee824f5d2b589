// Reads lines from the keyboard, with editing and a history that is kept, or from a pipe.
#pragma once

#include <memory>
#include <string>

namespace fathom::cli {

enum class LineEnd {
  kLine,
  kInterrupted,  // Ctrl-C: the line is thrown away
  kEndOfFile,    // Ctrl-D on an empty line
};

class LineEditor {
 public:
  /// The history is in $XDG_STATE_HOME/fathom/history, or ~/.local/state/fathom/history.
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// Whether a person types.
  bool is_interactive() const;
  /// `line` is without its line feed, in UTF-8; what is no UTF-8 became U+FFFD.
  LineEnd read(const std::string& prompt, std::string& line);
  void remember(const std::string& line);

 private:
  struct Keyboard;
  LineEnd read_pipe(std::string& line);
  std::unique_ptr<Keyboard> keyboard_;  // null: a pipe
  std::string unread_;                  // of the pipe
};

}  // namespace fathom::cli
