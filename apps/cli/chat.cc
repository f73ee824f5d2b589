// fathom chat: a conversation whose state stays in memory between the turns.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "answer_printer.h"
#include "commands.h"
#include "conversation.h"
#include "failure.h"
#include "generation.h"
#include "interrupt.h"
#include "line_editor.h"
#include "model_options.h"
#include "output.h"
#include "sampling_options.h"

namespace fathom::cli {
namespace {

constexpr const char* kHelp =
    "/help                        this list\n"
    "/reset                       forget the conversation, keep the system text\n"
    "/think [off|low|high|max|N]  how much to think first, N from 1 to 100; alone: say what is set\n"
    "/system [TEXT]               set the system text; alone: remove it\n"
    "/save FILE                   write the conversation to FILE (JSON) and its state to FILE.state\n"
    "/load FILE                   go on with a saved conversation\n"
    "/stats                       tokens, reuse and speed\n"
    "/quit                        leave; also Ctrl-D\n"
    "A line that ends in \\ goes on in the next. A line that begins with // is sent with one /.\n"
    "Ctrl-C stops the answer, or throws away the line.\n";

struct Options {
  ModelOptions model;
  SamplingOptions sampling;
  std::string system, thinking = "off";
  int64_t max_tokens = -1;
};

const char* action_name(fathom_sync_action action) {
  switch (action) {
    case FATHOM_REUSED: return "reused";
    case FATHOM_EXTENDED: return "extended";
    case FATHOM_REWOUND: return "rewound";
    case FATHOM_RESTORED: return "restored from a checkpoint";
    case FATHOM_REBUILT: return "built anew";
  }
  return "";
}

/// The file is whole or untouched.
void write_file(const std::string& path, const std::string& text) {
  std::error_code unknown;
  const auto status = std::filesystem::status(path, unknown);
  // Renaming would put a file in the place of a device or a pipe.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    fail("cannot write {}: not a regular file", path);
  const std::string draft = path + ".tmp";
  std::ofstream file(draft, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(draft, path, error);
  if (file && !error) return;
  std::error_code ignored;
  std::filesystem::remove(draft, ignored);
  fail("cannot write {}", path);
}

class Chat {
 public:
  Chat(Options& options, fathom_engine* engine);
  /// Reads turns until the end of the input. Returns the exit code.
  int talk();

 private:
  bool read_turn(std::string& text);
  void answer(const std::string& text);
  void command(const std::string& line);
  void think(const std::string& level);
  void save(const std::string& path);
  void load(const std::string& path);
  void show_stats();
  void note(const std::string& text);

  Options& options_;
  const fathom_tokenizer* tokenizer_;
  Session session_;
  Conversation conversation_;
  LineEditor editor_;
  Progress progress_;
  Output out_{STDOUT_FILENO}, err_{STDERR_FILENO};
  Generation last_;
  int64_t turns_ = 0;
  bool leave_ = false;
  bool failed_ = false;
};

Chat::Chat(Options& options, fathom_engine* engine)
    : options_(options),
      tokenizer_(fathom_engine_tokenizer(engine)),
      session_(open_session(engine, options.model)) {
  if (tokenizer_ == nullptr) fail("the pack has no tokenizer");
  conversation_.set_system(options.system);
  if (!conversation_.set_thinking(options.thinking))
    fail_usage("--think: expected off, low, high, max or a number from 1 to 100, found \"{}\"",
               options.thinking);
  options_.sampling.choose_seed();
}

/// Remarks are for the person, never part of an answer.
void Chat::note(const std::string& text) { err_.write(text + "\n"); }

int Chat::talk() {
  if (editor_.is_interactive()) note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.");
  std::string text;
  while (!leave_ && !out_.is_closed() && read_turn(text)) {
    if (text.find_first_not_of(" \t") == std::string::npos) continue;
    editor_.remember(text);
    clear_interrupt();
    try {
      if (text[0] == '/' && !text.starts_with("//")) {
        command(text);
      } else {
        answer(text[0] == '/' ? text.substr(1) : text);
      }
    } catch (const Failure& failure) {
      progress_.finish();
      failed_ = true;
      note("fathom: " + failure.message);
    }
    // A pipe has nobody who would type on.
    if (interrupted() && !editor_.is_interactive()) return kExitInterrupted;
    clear_interrupt();
  }
  if (out_.is_closed()) return kExitOutputClosed;
  if (interrupted()) return kExitInterrupted;
  return failed_ && !editor_.is_interactive() ? kExitFailure : 0;
}

/// False at the end of the input.
bool Chat::read_turn(std::string& text) {
  text.clear();
  bool goes_on = false;
  for (;;) {
    std::string line;
    const LineEnd end = editor_.read(goes_on ? ". " : "> ", line);
    if (end == LineEnd::kEndOfFile) {
      if (editor_.is_interactive()) note("");
      return goes_on;
    }
    if (end == LineEnd::kInterrupted) {
      text.clear();
      goes_on = false;
      continue;
    }
    goes_on = line.ends_with('\\');
    if (goes_on) line.back() = '\n';
    text += line;
    if (!goes_on) return true;
  }
}

void Chat::answer(const std::string& text) {
  conversation_.add_user(text);
  try {
    const std::string json = conversation_.json();
    const Prompt prompt(tokenizer_, json.c_str());
    AnswerPrinter printer({.tokenizer = tokenizer_,
                           .starts_in_thinking = prompt->starts_in_thinking,
                           .conversation_json = json.c_str(),
                           .stop_strings = {}},
                          out_, out_.is_terminal() ? out_ : err_);
    const auto prompt_tokens = static_cast<int64_t>(prompt.ids().size());
    const GenerationRequest request = {
        .session = session_.get(),
        .tokenizer = tokenizer_,
        .prompt = prompt.ids(),
        .max_tokens = options_.max_tokens,
        .sampling = options_.sampling.resolve(tokenizer_, false, prompt_tokens)};
    last_ = generate(request, progress_, [&](int32_t id) { return printer.take(id); });
    printer.finish(last_.end_id);
    if (!out_.at_line_start()) out_.write("\n");
    ++turns_;
    if (last_.tokens == 0 && last_.reason == EndReason::kInterrupted) {
      conversation_.drop_last();
      note("(interrupted before the answer began; your message was taken back)");
      return;
    }
    conversation_.add_answer(printer.message_json());
    if (last_.reason != EndReason::kEos) note(fmt::format("({})", end_reason_name(last_.reason)));
  } catch (const Failure&) {
    conversation_.drop_last();
    throw;
  }
}

void Chat::command(const std::string& line) {
  const size_t space = line.find_first_of(" \t\n");
  const std::string name = line.substr(0, space);
  const size_t start = space == std::string::npos ? space : line.find_first_not_of(" \t\n", space);
  std::string argument = start == std::string::npos ? "" : line.substr(start);
  argument.erase(argument.find_last_not_of(" \t\n") + 1);
  if (name == "/help") return note(std::string(kHelp, std::string_view(kHelp).size() - 1));
  if (name == "/quit" || name == "/exit") {
    leave_ = true;
    return;
  }
  if (name == "/reset") {
    conversation_.reset();
    return note("the conversation is forgotten");
  }
  if (name == "/system") {
    conversation_.set_system(argument);
    return note(argument.empty() ? "no system text" : "the system text is set");
  }
  if (name == "/think") return think(argument);
  if (name == "/stats") return show_stats();
  if (name != "/save" && name != "/load") fail("unknown command {}; /help lists them", name);
  if (argument.empty()) fail("{} needs a file name", name);
  if (name == "/save") return save(argument);
  load(argument);
}

void Chat::think(const std::string& level) {
  if (!level.empty() && !conversation_.set_thinking(level))
    fail("/think: expected off, low, high, max or a number from 1 to 100, found \"{}\"", level);
  note("thinking: " + conversation_.thinking());
}

void Chat::save(const std::string& path) {
  write_file(path, conversation_.file_text());
  require(fathom_session_save(session_.get(), (path + ".state").c_str()));
  note(fmt::format("saved {} messages to {} and {} tokens to {}.state", conversation_.message_count(), path,
                   fathom_session_position(session_.get()), path));
}

void Chat::load(const std::string& path) {
  conversation_.load(read_all(path));
  const std::string state = path + ".state";
  // Without its state the conversation is whole all the same: the next turn reads it again.
  if (fathom_session_load(session_.get(), state.c_str()) != FATHOM_OK)
    return note(fmt::format("loaded {} messages; the next turn reads them again, because: {}",
                            conversation_.message_count(), fathom_last_error()));
  note(fmt::format("loaded {} messages and {} tokens", conversation_.message_count(),
                   fathom_session_position(session_.get())));
}

void Chat::show_stats() {
  note(fmt::format("context      {:>6} of {} tokens, {} messages, thinking {}",
                   fathom_session_position(session_.get()), fathom_session_context(session_.get()),
                   conversation_.message_count(), conversation_.thinking()));
  if (!options_.sampling.is_greedy()) note(fmt::format("seed         {}", options_.sampling.seed()));
  if (turns_ == 0) return;
  note(fmt::format("last turn    {:>6} tokens reused ({})", last_.sync.reused_tokens,
                   action_name(last_.sync.action)));
  print_statistics(err_, last_);
}

int chat(Options& options) {
  Progress progress;
  const Engine engine = open_engine(options.model, progress);
  Chat conversation(options, engine.get());
  return conversation.talk();
}

}  // namespace

Command add_chat(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat", "Talk with the model");
  auto options = std::make_shared<Options>();
  command->add_option("--system", options->system, "System text");
  command->add_option("--think", options->thinking,
                      "How much to think first: off (default), low, high, max or 1 to 100")
      ->type_name("LEVEL");
  add_number(*command, "-n,--predict", options->max_tokens, -1, 1e9,
             "Tokens of an answer at most; -1: until the model ends or the context is full (default)");
  options->sampling.add_to(*command);
  options->model.add_all(*command);
  command->footer(
      std::string("Commands while talking:\n") + kHelp +
      "\nLines are read from standard input when it is a pipe. Thinking is shown dimmed on a terminal, and "
      "goes to\nstandard error elsewhere.\n\n"
      "Examples:\n"
      "  fathom chat --think high\n"
      "  printf 'Hello\\nAnd now?\\n' | fathom chat --temp 0\n");
  return {command, [options] { return chat(*options); }};
}

}  // namespace fathom::cli
