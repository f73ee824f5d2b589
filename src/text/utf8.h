// UTF-8: decode one character, check, repair, and hold back half characters of a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fathom {

enum class Utf8Status : uint8_t {
  kValid,
  kInvalid,    // the bytes can start no character, whatever follows
  kTruncated,  // the text ends inside what could still become a character
};

struct Utf8Char {
  char32_t code;        // U+FFFD unless valid
  uint8_t length_bytes;  // if invalid: the longest prefix of a character found here, at least 1
  Utf8Status status;
};

/// Character at `position` < text.size(). Surrogates, overlong forms and codes above U+10FFFF are invalid.
Utf8Char decode_utf8(std::string_view text, size_t position);

bool is_valid_utf8(std::string_view text);

/// Appends `code` (at most U+10FFFF, no surrogate).
void append_utf8(char32_t code, std::string& out);

/// One U+FFFD for each invalid stretch, cut as the Unicode standard recommends ("maximal subparts", which is
/// also what Python, Rust and browsers do). Valid text comes back unchanged.
std::string replace_invalid_utf8(std::string_view text);

/// Turns a stream of bytes cut anywhere into pieces that are whole, valid UTF-8. The pieces put together
/// equal replace_invalid_utf8 of the whole stream, however it was cut. Not thread-safe.
class Utf8Holder {
 public:
  /// Takes bytes, returns the characters that are complete now (possibly none).
  std::string push(std::string_view bytes);
  /// Ends the stream: U+FFFD if a character was left unfinished, else nothing. Ready for a new stream.
  std::string flush();
  size_t pending_bytes() const { return pending_.size(); }

 private:
  std::string pending_;  // at most 3 bytes
};

}  // namespace fathom
