// fathom: runs DeepSeek-V4.1-Flash packs. Parses the command line and hands over to a command.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <sstream>
#include <vector>

#include "commands.h"
#include "failure.h"
#include "interrupt.h"
#include "output.h"
#include "suggestion.h"

namespace fathom::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  fathom run \"Once upon a time\" -n 200\n"
    "  fathom chat -m models/DeepSeek-V4.1-Flash --ctx 128K\n"
    "  fathom serve -m models/DeepSeek-V4.1-Flash --ctx 128K --parallel 4\n"
    "  fathom inspect model.gguf\n"
    "  fathom plan -m model.gguf --ctx 1M --memory 96GB\n\n"
    "Without -m the pack in $FATHOM_MODEL runs, or else the small embedded model.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong command line, 3 does not fit (plan), 130 interrupted.\n";

std::vector<std::string> known_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

/// A stream that was closed before the start would be taken by the next file that is opened: the pack would
/// be read as what the user types, answers written into a saved state. Reading or writing what takes its
/// place fails, as on a closed one.
void occupy_standard_streams() {
  for (const int wanted : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(wanted, F_GETFD) >= 0) continue;
    // The lowest free number is the wanted one.
    [[maybe_unused]] const int opened =
        open("/dev/null", wanted == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int report_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {  // --help, --version
    std::ostringstream text;
    app.exit(error, text);
    Output output(STDOUT_FILENO);
    return output.write_raw(text.str()) ? 0 : kExitOutputClosed;
  }
  const CLI::App* command = &app;
  std::string name = "fathom";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  std::string message = error.what();
  if (const auto extras = command->remaining(); !extras.empty()) {
    message =
        fmt::format("unexpected \"{}\"{}", extras.front(), suggestion(extras.front(), known_names(*command)));
  }
  remark(fmt::format("fathom: {} (see {} --help)\n", message, name));
  return kExitUsage;
}

int run_command(int argc, char** argv) {
  CLI::App app("Runs DeepSeek-V4.1-Flash packs on the CPU.", "fathom");
  app.footer(kExamples);
  app.set_version_flag("--version", fathom_version(), "Print the version and leave");
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  const Command commands[] = {add_run(app),      add_chat(app),       add_inspect(app),       add_plan(app),
                              add_tokenize(app), add_detokenize(app), add_chat_template(app), add_quantize(app),
                              add_synth(app),    add_eval(app),       add_imatrix(app),       add_compare(app),
                              add_serve(app),    add_bench(app)};
  if (argc <= 1) {
    remark(app.help());
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return report_parse_error(app, error);
  }
  for (const Command& command : commands)
    if (command.app->parsed()) return command.run();
  return kExitUsage;
}

}  // namespace
}  // namespace fathom::cli

int main(int argc, char** argv) {
  using namespace fathom::cli;
  occupy_standard_streams();
  catch_signals();
  try {
    return run_command(argc, argv);
  } catch (const Failure& failure) {
    if (!failure.message.empty()) remark(fmt::format("fathom: {}\n", failure.message));
    return failure.exit_code;
  } catch (const std::exception& error) {
    remark(fmt::format("fathom: {}\n", error.what()));
    return kExitFailure;
  }
}
