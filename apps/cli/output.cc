#include "output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "failure.h"
#include "interrupt.h"

namespace fathom::cli {
namespace {

constexpr size_t kInputBytesMax = size_t{1} << 30;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Character {
  size_t bytes;  // how many belong together
  bool valid;
  bool cut;  // valid so far, but the text ends inside of it
};

/// Looks at the character at the start of `text`, which is not empty (Unicode 15, table 3-7).
Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {1, true, false};
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : (lead & 0xF0) == 0xE0        ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0) return {1, false, false};
  for (size_t at = 1; at < length; ++at) {
    if (at == text.size()) return {at, true, true};
    const auto byte = static_cast<unsigned char>(text[at]);
    unsigned char low = 0x80, high = 0xBF;
    if (at == 1 && lead == 0xE0) low = 0xA0;
    if (at == 1 && lead == 0xED) high = 0x9F;
    if (at == 1 && lead == 0xF0) low = 0x90;
    if (at == 1 && lead == 0xF4) high = 0x8F;
    if (byte < low || byte > high) return {at, false, false};
  }
  return {length, true, false};
}

bool is_control(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return (lead < 0x20 && lead != '\n' && lead != '\t') || lead == 0x7F;
  return lead == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

std::string without_controls(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Character next = first_character(text);
    const std::string_view character = text.substr(0, next.bytes);
    result += is_control(character) ? kReplacement : character;
    text.remove_prefix(next.bytes);
  }
  return result;
}

}  // namespace

std::string Utf8Stream::take(std::string_view bytes) {
  std::string text = std::move(held_);
  held_.clear();
  text += bytes;
  std::string whole;
  for (std::string_view rest = text; !rest.empty();) {
    const Character next = first_character(rest);
    if (next.cut) {
      held_ = rest;
      break;
    }
    whole += next.valid ? rest.substr(0, next.bytes) : kReplacement;
    rest.remove_prefix(next.bytes);
  }
  return whole;
}

std::string Utf8Stream::finish() {
  const bool broken = !held_.empty();
  held_.clear();
  return broken ? std::string(kReplacement) : std::string();
}

Output::Output(int descriptor)
    : descriptor_(descriptor),
      terminal_(isatty(descriptor) != 0),
      style_(terminal_ && std::getenv("NO_COLOR") == nullptr) {}

bool Output::write(std::string_view text) { return write_raw(terminal_ ? without_controls(text) : text); }

bool Output::write_raw(std::string_view bytes) {
  if (closed_) return false;
  if (!bytes.empty()) at_line_start_ = bytes.back() == '\n';
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == EPIPE || descriptor_ == STDERR_FILENO)) {
      closed_ = true;
      return false;
    }
    if (written < 0) fail("cannot write the output: {}", std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void remark(std::string_view text) { Output(STDERR_FILENO).write_raw(text); }

std::string printable(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.take(bytes);
  return text + stream.finish();
}

std::string quoted(std::string_view bytes) { return nlohmann::json(printable(bytes)).dump(); }

std::string read_all(const std::string& path) {
  const bool is_stdin = path == "-";
  const int descriptor = is_stdin ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const char* name = is_stdin ? "standard input" : path.c_str();
  if (descriptor < 0) fail("cannot read {}: {}", name, std::strerror(errno));
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t count = read(descriptor, buffer, sizeof(buffer));
    const int error = count < 0 ? errno : 0;
    const bool stop = interrupted();
    if (error == EINTR && !stop) continue;
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
    if (count > 0 && !stop && text.size() <= kInputBytesMax) continue;
    if (!is_stdin) close(descriptor);
    if (stop) throw Failure{kExitInterrupted, "interrupted"};
    if (error != 0) fail("cannot read {}: {}", name, std::strerror(error));
    if (text.size() > kInputBytesMax) fail("cannot read {}: more than 1 GiB", name);
    return text;
  }
}

}  // namespace fathom::cli
