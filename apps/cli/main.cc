// fathom: runs DeepSeek-V4.1-Flash packs. Parses the command line and hands over to a command.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <vector>

#include "commands.h"
#include "failure.h"
#include "interrupt.h"
#include "suggestion.h"

namespace fathom::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  fathom run \"Once upon a time\" -n 200\n"
    "  fathom chat -m models/DeepSeek-V4.1-Flash --ctx 128K\n"
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

int report_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
  const CLI::App* command = &app;
  const auto chosen = app.get_subcommands();
  if (!chosen.empty()) command = chosen.front();
  std::string message = error.what();
  if (const auto extras = command->remaining(); !extras.empty()) {
    message =
        fmt::format("unexpected \"{}\"{}", extras.front(), suggestion(extras.front(), known_names(*command)));
  }
  const std::string name = command == &app ? "fathom" : "fathom " + command->get_name();
  fmt::print(stderr, "fathom: {} (see {} --help)\n", message, name);
  return kExitUsage;
}

int run_command(int argc, char** argv) {
  CLI::App app("Runs DeepSeek-V4.1-Flash packs on the CPU.", "fathom");
  app.footer(kExamples);
  app.set_version_flag("--version", fathom_version(), "Print the version and leave");
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  const Command commands[] = {add_run(app),      add_chat(app),       add_inspect(app),      add_plan(app),
                              add_tokenize(app), add_detokenize(app), add_chat_template(app)};
  if (argc <= 1) {
    fmt::print(stderr, "{}", app.help());
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
  catch_signals();
  try {
    return run_command(argc, argv);
  } catch (const Failure& failure) {
    if (!failure.message.empty()) fmt::print(stderr, "fathom: {}\n", failure.message);
    return failure.exit_code;
  } catch (const std::exception& error) {
    fmt::print(stderr, "fathom: {}\n", error.what());
    return kExitFailure;
  }
}
