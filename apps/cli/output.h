// Standard output and standard error as streams of whole characters.
#pragma once

#include <string>
#include <string_view>

namespace fathom::cli {

/// Cuts a stream of bytes into whole UTF-8 characters. The tail of an unfinished character is held until the
/// rest arrives; what can never become a character turns into one U+FFFD.
class Utf8Stream {
 public:
  std::string take(std::string_view bytes);
  /// The end: what is still held becomes U+FFFD.
  std::string finish();
  bool holding() const { return !held_.empty(); }

 private:
  std::string held_;  // at most 3 bytes
};

/// Writes to a file descriptor, unbuffered: text appears as it is made. On a terminal, control characters
/// other than line feed and tab are replaced, so that a model cannot steer the terminal.
class Output {
 public:
  explicit Output(int descriptor);
  /// False once the reader is gone (EPIPE). Throws Failure on other errors, as when a disk is full; not for
  /// standard error, whose remarks must not decide whether the work is done.
  bool write(std::string_view text);
  /// The same without looking at control characters.
  bool write_raw(std::string_view bytes);
  bool is_closed() const { return closed_; }
  bool is_terminal() const { return terminal_; }
  /// Terminal, and NO_COLOR is not set.
  bool has_style() const { return style_; }
  /// Whether what was written last ended a line; true at the beginning.
  bool at_line_start() const { return at_line_start_; }
  /// After writing what takes no room, as the end of a style.
  void mark_line_start() { at_line_start_ = true; }

 private:
  int descriptor_;
  bool terminal_;
  bool style_;
  bool closed_ = false;
  bool at_line_start_ = true;
};

/// A remark on standard error; whether it can be written does not matter.
void remark(std::string_view text);

/// The bytes as they can be printed: U+FFFD for what is no UTF-8.
std::string printable(std::string_view bytes);
/// A JSON string literal of printable(bytes).
std::string quoted(std::string_view bytes);

/// Whole content of a file, or of standard input for "-"; at most 1 GiB, so that an endless device does not
/// take all memory. Throws Failure.
std::string read_all(const std::string& path);

}  // namespace fathom::cli
