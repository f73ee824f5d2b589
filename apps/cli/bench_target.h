// Options of `fathom bench` that say what is measured.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "handles.h"
#include "measure/source_text.h"
#include "measure/target.h"
#include "model_options.h"

namespace fathom::cli {

using TargetFactory = std::function<std::unique_ptr<measure::Target>()>;

struct BenchTarget {
  std::string target = "local";  // "local", "serve" or an URL
  std::string driver, server_command, api_key, served_model, pack, tokenizer, log;
  ModelOptions model;
  std::shared_ptr<void> own_log;  // removes the log when all is over
  int parallel = 1;  // requests at once of a server that is started

  void add(CLI::App& app);
  /// Throws Failure for what contradicts itself. `context_tokens`: what the measurement needs; --ctx wins.
  void check_and_plan(int64_t context_tokens);
  /// Each target it makes is a fresh process of the same kind, or a connection to the server that runs.
  TargetFactory factory() const;
  /// Connections to the server at `address`, which somebody else started and stops.
  TargetFactory users_of(const std::string& address) const;
  /// Cuts texts into ids: of --tokenizer, --pack or -m.
  Tokenizer open_tokenizer() const;
  /// What a resumed campaign must have in common: target, driver, command, pack.
  std::string identity() const;
  /// The pack's path where it is known, else "".
  std::string pack_path() const;
  bool is_local() const { return target == "local"; }
  bool starts_server() const { return target == "serve" || !server_command.empty(); }
};

/// The file of this program.
std::string own_path();

/// Throws Failure. Shorter than `needed_tokens`: a failure that says both.
measure::SourceText load_source(const std::string& name, const fathom_tokenizer* tokenizer, int64_t needed_tokens);

/// "1", "1/16", "0.5": a factor of lengths.
struct Scale {
  std::string text = "1";
  /// Rounded down to a whole token, at least 2.
  int64_t of(int64_t tokens) const;
};
/// "8K,32K" -> {8192, 32768}. Throws Failure.
std::vector<int64_t> parse_lengths(const std::string& list);

}  // namespace fathom::cli
