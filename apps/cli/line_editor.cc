#include "line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "failure.h"
#include "interrupt.h"
#include "output.h"

namespace fathom::cli {
namespace {

constexpr int kHistoryLines = 1000;

// wchar_t is UTF-32 on the systems that have libedit; going through the locale would lose characters under
// "C".
std::wstring widen(std::string_view text) {
  const std::string valid = printable(text);
  std::wstring wide;
  for (size_t at = 0; at < valid.size();) {
    const auto lead = static_cast<unsigned char>(valid[at]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    auto code = static_cast<wchar_t>(length == 1 ? lead : lead & (0x7F >> length));
    for (size_t next = 1; next < length; ++next)
      code = static_cast<wchar_t>(code << 6 | (static_cast<unsigned char>(valid[at + next]) & 0x3F));
    wide += code;
    at += length;
  }
  return wide;
}

std::string narrow(std::wstring_view wide) {
  std::string text;
  for (const wchar_t letter : wide) {
    const auto code = static_cast<uint32_t>(letter);
    if (code < 0x80) {
      text += static_cast<char>(code);
      continue;
    }
    const int tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    text += static_cast<char>((0xF00 >> (tail + 1) & 0xFF) | code >> 6 * tail);
    for (int shift = 6 * (tail - 1); shift >= 0; shift -= 6)
      text += static_cast<char>(0x80 | (code >> shift & 0x3F));
  }
  return printable(text);
}

std::string history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (state != nullptr && state[0] == '/') {
    folder = state;
  } else if (home != nullptr && home[0] != '\0') {
    folder = std::filesystem::path(home) / ".local" / "state";
  } else {
    return "";
  }
  folder /= "fathom";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? "" : (folder / "history").string();
}

/// libedit draws characters through the locale; it must know UTF-8.
void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineEditor::Keyboard {
  EditLine* editor = nullptr;
  HistoryW* history = nullptr;
  HistEventW event{};
  std::string history_file;
  std::wstring prompt;
  Utf8Stream typed;
  std::wstring characters;  // typed and whole, not yet handed out

  static wchar_t* show_prompt(EditLine* editor) {
    Keyboard* self = nullptr;
    el_wget(editor, EL_CLIENTDATA, &self);
    return self->prompt.data();
  }

  /// One character, or -1 with errno EINTR after Ctrl-C. libedit's own reader goes on after a signal.
  static int read_character(EditLine* editor, wchar_t* character) {
    Keyboard* self = nullptr;
    el_wget(editor, EL_CLIENTDATA, &self);
    while (self->characters.empty()) {
      char byte = 0;
      const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
      if (count == 0) return 0;
      if (count < 0 && errno == EINTR && !interrupted()) continue;
      if (count < 0) return -1;
      self->characters = widen(self->typed.take({&byte, 1}));
    }
    *character = self->characters[0];
    self->characters.erase(0, 1);
    return 1;
  }
};

LineEditor::LineEditor() {
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return;
  use_utf8_locale();
  auto keyboard = std::make_unique<Keyboard>();
  keyboard->editor = el_init("fathom", stdin, stdout, stderr);
  keyboard->history = history_winit();
  if (keyboard->editor == nullptr || keyboard->history == nullptr)
    fail("cannot open the terminal for editing");
  EditLine* editor = keyboard->editor;
  history_w(keyboard->history, &keyboard->event, H_SETSIZE, kHistoryLines);
  history_w(keyboard->history, &keyboard->event, H_SETUNIQUE, 1);
  keyboard->history_file = history_path();
  if (!keyboard->history_file.empty())
    history_w(keyboard->history, &keyboard->event, H_LOAD, keyboard->history_file.c_str());
  el_wset(editor, EL_CLIENTDATA, keyboard.get());
  el_wset(editor, EL_EDITOR, L"emacs");
  el_wset(editor, EL_PROMPT, Keyboard::show_prompt);
  el_wset(editor, EL_HIST, history_w, keyboard->history);
  el_wset(editor, EL_GETCFN, Keyboard::read_character);
  el_wset(editor, EL_BIND, L"^R", L"em-inc-search-prev", nullptr);
  el_source(editor, nullptr);
  keyboard_ = std::move(keyboard);
}

LineEditor::~LineEditor() {
  if (keyboard_ == nullptr) return;
  history_wend(keyboard_->history);
  el_end(keyboard_->editor);
}

bool LineEditor::is_interactive() const { return keyboard_ != nullptr; }

LineEnd LineEditor::read(const std::string& prompt, std::string& line) {
  line.clear();
  if (keyboard_ == nullptr) return read_pipe(line);
  keyboard_->prompt = widen(prompt);
  el_resize(keyboard_->editor);
  int count = 0;
  const wchar_t* wide = el_wgets(keyboard_->editor, &count);
  if (interrupted()) {
    clear_interrupt();
    el_reset(keyboard_->editor);
    Output(STDOUT_FILENO).write_raw("\n");
    return LineEnd::kInterrupted;
  }
  if (wide == nullptr || count <= 0) return LineEnd::kEndOfFile;
  line = narrow({wide, static_cast<size_t>(count)});
  if (line.ends_with('\n')) line.pop_back();
  return LineEnd::kLine;
}

void LineEditor::remember(const std::string& line) {
  if (keyboard_ == nullptr || line.empty()) return;
  history_w(keyboard_->history, &keyboard_->event, H_ENTER, widen(line).c_str());
  // At once: the program may be killed, and a lost history is noticed days later.
  if (!keyboard_->history_file.empty())
    history_w(keyboard_->history, &keyboard_->event, H_SAVE, keyboard_->history_file.c_str());
}

LineEnd LineEditor::read_pipe(std::string& line) {
  size_t searched = 0;  // a long line comes in many pieces
  for (;;) {
    const size_t end = unread_.find('\n', searched);
    if (end != std::string::npos) {
      line = printable(unread_.substr(0, end));
      unread_.erase(0, end + 1);
      if (line.ends_with('\r')) line.pop_back();
      return LineEnd::kLine;
    }
    searched = unread_.size();
    char buffer[65536];
    const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR && !interrupted()) continue;
    if (count < 0 && errno != EINTR) fail("cannot read standard input: {}", std::strerror(errno));
    if (count < 0) return LineEnd::kEndOfFile;
    if (count == 0) {
      if (unread_.empty()) return LineEnd::kEndOfFile;
      unread_ += '\n';
      continue;
    }
    unread_.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace fathom::cli
