// fathom chat-template: what a conversation becomes before the model reads it.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "failure.h"
#include "model_options.h"
#include "output.h"

namespace fathom::cli {
namespace {

struct Options {
  ModelOptions model;
  std::string path;
  bool ids = false, text = false, json = false;
};

std::string render(const Options& options, const Prompt& prompt) {
  if (options.json) {
    const nlohmann::ordered_json json = {{"ids", prompt.ids()},
                                         {"text", prompt->text},
                                         {"stable_count", prompt->stable_count},
                                         {"image_count", prompt->image_count},
                                         {"starts_in_thinking", prompt->starts_in_thinking}};
    return json.dump() + "\n";
  }
  if (options.ids) return fmt::format("{}\n", fmt::join(prompt.ids(), " "));
  return prompt->text;
}

int chat_template(const Options& options) {
  const std::string conversation = read_all(options.path);
  const Tokenizer tokenizer = open_tokenizer(options.model);
  const Prompt prompt(tokenizer.get(), conversation.c_str());
  Output output(STDOUT_FILENO);
  output.write(render(options, prompt));
  if (output.is_terminal() && !output.at_line_start()) output.write("\n");
  return output.is_closed() ? kExitOutputClosed : 0;
}

}  // namespace

Command add_chat_template(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat-template", "Render a JSON conversation to text or ids");
  auto options = std::make_shared<Options>();
  options->model.add_path(*command);
  command->add_option("file", options->path, "{\"messages\": [...], ...}, or - for standard input")
      ->required();
  CLI::Option* ids = command->add_flag("--ids", options->ids, "The ids, on one line");
  CLI::Option* text =
      command->add_flag("--text", options->text, "The text (default); not to be tokenized again");
  command->add_flag("--json", options->json, "Both, with counts, as JSON")->excludes(ids)->excludes(text);
  ids->excludes(text);
  command->footer(
      "Example:\n"
      "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' | fathom chat-template -\n");
  return {command, [options] { return chat_template(*options); }};
}

}  // namespace fathom::cli
