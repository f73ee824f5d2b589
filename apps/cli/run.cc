// fathom run: goes on with a text.
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "answer_printer.h"
#include "commands.h"
#include "conversation.h"
#include "failure.h"
#include "generation.h"
#include "model_options.h"
#include "output.h"
#include "sampling_options.h"
#include "sizes.h"
#include "token_printer.h"

namespace fathom::cli {
namespace {

constexpr int64_t kDefaultTokens = 512;

struct Options {
  ModelOptions model;
  SamplingOptions sampling;
  std::string prompt, prompt_file, token_file, system, thinking = "off";
  CLI::Option* prompt_option = nullptr;
  int64_t max_tokens = kDefaultTokens;
  int logprobs = 0;
  std::vector<std::string> stop_strings;
  bool chat = false, ids = false, json = false, echo = false, no_bos = false, parse_special = false;
  bool ignore_eos = false, quiet = false;

  bool has_prompt() const { return prompt_option->count() > 0; }
};

void check(const Options& options) {
  const int sources = options.has_prompt() + !options.prompt_file.empty() + !options.token_file.empty();
  if (sources > 1) fail_usage("more than one prompt: give a text, --prompt-file or --tokens");
  if (sources == 0 && isatty(STDIN_FILENO))
    fail_usage("no prompt: give a text, --prompt-file, --tokens, or send one to standard input");
  if (options.chat && !options.token_file.empty()) fail_usage("--chat needs a text, not --tokens");
  if (!options.chat && (!options.system.empty() || options.thinking != "off"))
    fail_usage("--system and --think belong to --chat");
}

std::string prompt_text(const Options& options) {
  if (options.has_prompt()) return options.prompt;
  std::string text = read_all(options.prompt_file.empty() ? "-" : options.prompt_file);
  // Editors and echo end a file with a line feed that nobody wants the model to go on from.
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

struct PromptIds {
  std::vector<int32_t> ids;
  std::string text;
  std::string conversation_json;  // with --chat
  bool starts_in_thinking = false;
};

PromptIds chat_prompt(const Options& options, std::string text, const fathom_tokenizer* tokenizer) {
  Conversation conversation;
  conversation.set_system(options.system);
  if (!conversation.set_thinking(options.thinking))
    fail_usage("--think: expected off, low, high, max or a number from 1 to 100, found \"{}\"",
               options.thinking);
  conversation.add_user(text);
  PromptIds result;
  result.conversation_json = conversation.json();
  const Prompt prompt(tokenizer, result.conversation_json.c_str());
  result.ids.assign(prompt.ids().begin(), prompt.ids().end());
  result.starts_in_thinking = prompt->starts_in_thinking;
  result.text = std::move(text);
  return result;
}

PromptIds make_prompt(const Options& options, std::string text, const fathom_tokenizer* tokenizer) {
  if (options.chat) return chat_prompt(options, std::move(text), tokenizer);
  PromptIds result;
  int32_t* ids = nullptr;
  size_t count = 0;
  require(fathom_tokenize(tokenizer, text.data(), text.size(), options.parse_special, &ids, &count));
  const Ids owner(ids);
  result.ids.assign(ids, ids + count);
  const int32_t bos = fathom_token_id(tokenizer, FATHOM_TOKEN_BOS);
  if (!options.no_bos && bos >= 0) result.ids.insert(result.ids.begin(), bos);
  result.text = std::move(text);
  return result;
}

/// Text goes straight through; ids, JSON and tables need a record of each token.
Generation write_answer(const Options& options, const PromptIds& prompt, const GenerationRequest& request,
                        Output& out, Output& err) {
  Progress progress;
  if (options.chat && !options.ids && !options.json && options.logprobs == 0) {
    AnswerPrinter printer({.tokenizer = request.tokenizer,
                           .starts_in_thinking = prompt.starts_in_thinking,
                           .conversation_json = prompt.conversation_json.c_str(),
                           .stop_strings = options.stop_strings},
                          out, err);
    const Generation generation = generate(request, progress, [&](int32_t id) { return printer.take(id); });
    printer.finish(generation.end_id);
    return generation;
  }
  const TokenFormat format = options.json  ? TokenFormat::kJson
                             : options.ids ? TokenFormat::kIds
                                           : TokenFormat::kText;
  TokenPrinter printer(request.session, request.tokenizer, format, options.logprobs, options.stop_strings,
                       out);
  const Generation generation = generate(request, progress, [&](int32_t id) { return printer.take(id); });
  printer.finish();
  if (options.logprobs > 0 && !options.json) printer.print_table(err);
  return generation;
}

void write_json_end(const Generation& generation, uint64_t seed, bool is_greedy, Output& out) {
  nlohmann::ordered_json end = {{"ended", end_reason_name(generation.reason)},
                                {"prefill_tokens", generation.sync.evaluated_tokens},
                                {"prefill_seconds", generation.prefill_seconds},
                                {"decode_tokens", generation.tokens},
                                {"decode_seconds", generation.decode_seconds},
                                {"first_token_seconds", generation.first_token_seconds}};
  if (!is_greedy) end["seed"] = seed;
  out.write(end.dump() + "\n");
}

int exit_code(const Generation& generation) {
  switch (generation.reason) {
    case EndReason::kInterrupted: return kExitInterrupted;
    case EndReason::kOutputClosed: return kExitOutputClosed;
    default: return 0;
  }
}

int run(Options& options) {
  check(options);
  std::vector<int32_t> given_ids;
  std::string text;
  if (!options.token_file.empty()) {
    given_ids = parse_ids(read_all(options.token_file));
  } else {
    text = prompt_text(options);
  }
  Progress progress;
  const Engine engine = open_engine(options.model, progress);
  const fathom_tokenizer* tokenizer = fathom_engine_tokenizer(engine.get());
  if (tokenizer == nullptr) fail("the pack has no tokenizer");
  PromptIds prompt;
  if (options.token_file.empty()) {
    prompt = make_prompt(options, std::move(text), tokenizer);
  } else {
    prompt.ids = std::move(given_ids);
  }
  const Session session = open_session(engine.get(), options.model);
  options.sampling.choose_seed();

  Output out(STDOUT_FILENO), err(STDERR_FILENO);
  if (options.echo && !options.ids && !options.json) out.write(printable(prompt.text));
  const GenerationRequest request = {
      .session = session.get(),
      .tokenizer = tokenizer,
      .prompt = prompt.ids,
      .max_tokens = options.max_tokens,
      .sampling =
          options.sampling.resolve(tokenizer, options.ignore_eos, static_cast<int64_t>(prompt.ids.size()))};
  const Generation generation = write_answer(options, prompt, request, out, err);
  if (options.json) write_json_end(generation, options.sampling.seed(), options.sampling.is_greedy(), out);
  // The text stays as it was written, unless a person reads it: then a line ends it.
  if (!out.at_line_start() && (out.is_terminal() || !options.quiet))
    (out.is_terminal() ? out : err).write("\n");
  if (!options.quiet) {
    print_statistics(err, generation);
    if (!options.sampling.is_greedy())
      err.write_raw(fmt::format("seed         {}\n", options.sampling.seed()));
  }
  return exit_code(generation);
}

void add_output_options(CLI::App& command, Options& options) {
  command.add_option("--stop", options.stop_strings, "End before this text. Repeatable")
      ->type_name("TEXT")
      ->expected(1)
      ->take_all();
  command.add_flag("--ignore-eos", options.ignore_eos, "Go on where the model would end");
  command.add_flag("--echo", options.echo, "Print the prompt first");
  CLI::Option* json = command.add_flag(
      "--json", options.json, "Print a JSON line for each token, and one at the end instead of text");
  command.add_flag("--ids", options.ids, "Print ids instead of text, without the one that ended it")
      ->excludes(json);
  add_number(
      command, "--logprobs", options.logprobs, 0, 1000,
      "Log-probabilities of each token and the N best: a table on standard error; with --json in its lines")
      ->type_name("N");
  command.add_flag("-q,--quiet", options.quiet, "No statistics");
}

}  // namespace

Command add_run(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Go on with a text, or answer it (--chat)");
  auto options = std::make_shared<Options>();
  options->prompt_option = command->add_option("prompt", options->prompt, "Text (default: standard input)");
  command->add_option("-f,--prompt-file", options->prompt_file,
                      "Read the text from a file, less its last line feed")
      ->type_name("FILE");
  command->add_option(
      "--tokens", options->token_file,
      "Read token ids instead: white space or a JSON array; - is standard input. Nothing is added")
      ->type_name("FILE");
  command->add_flag("--no-bos", options->no_bos, "Do not put the token that begins a text in front");
  command->add_flag("--special", options->parse_special, "Spellings of control tokens become those tokens");
  command->add_flag("--chat", options->chat,
                    "The text is a user's turn; only the answer goes to standard output");
  command->add_option("--system", options->system, "System text, with --chat");
  command->add_option("--think", options->thinking, "off (default), low, high, max or 1 to 100, with --chat")
      ->type_name("LEVEL");
  add_number(*command, "-n,--predict", options->max_tokens, -1, 1e9,
             "Tokens at most (default 512); -1: until the model ends or the context is full");
  add_output_options(*command, *options);
  options->sampling.add_to(*command);
  options->model.keeps_checkpoints = false;  // one prompt
  options->model.add_all(*command);
  command->footer(
      "Only the text goes to standard output; speed, seed and why it ended go to standard error.\n\n"
      "Examples:\n"
      "  fathom run \"Once upon a time\" -n 200\n"
      "  fathom run --chat \"What is a fjord?\" --temp 0\n"
      "  fathom run --stop $'\\n\\n' < beginning.txt\n"
      "  fathom tokenize --ids-only \"Hello\" | fathom run --tokens - --ids\n");
  return {command, [options] { return run(*options); }};
}

}  // namespace fathom::cli
