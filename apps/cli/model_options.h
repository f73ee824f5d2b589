// Options that name a model and say how it runs.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "handles.h"
#include "progress.h"

namespace fathom::cli {

struct ModelOptions {
  std::string model;  // empty: $FATHOM_MODEL, else the embedded model
  std::string backend, cpu_isa, numerics, ced, engram;
  int threads = 0, io_threads = 0, step_rows = 0, sessions = 0;
  int64_t context_tokens = 0;
  int64_t budget_bytes = 0;
  bool verbose = false;
  bool pin = false;
  bool keeps_checkpoints = true;  // of prompts, to come back to

  /// -m only.
  void add_path(CLI::App& app);
  /// -m, --ctx, --memory and what chooses the arithmetic.
  void add_all(CLI::App& app, const char* context_default = "4096");
  const char* path() const { return model.empty() ? nullptr : model.c_str(); }
  /// The same choice as arguments of a command line, what is left at its default not among them.
  std::vector<std::string> arguments() const;
  /// Borrows the strings.
  fathom_engine_options engine_options() const;
};

/// Throws Failure. Shows progress; with `verbose` also the engine's summary and log.
Engine open_engine(const ModelOptions& options, Progress& progress);
Session open_session(fathom_engine* engine, const ModelOptions& options);
/// Of -m, without loading the model.
Tokenizer open_tokenizer(const ModelOptions& options);

/// An option that takes a finite number from `low` to `high`.
template <class Number>
CLI::Option* add_number(CLI::App& app, const std::string& names, Number& value, double low, double high,
                        const std::string& help) {
  const auto check = [low, high](const std::string& text) -> std::string {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    const bool is_whole =
        !std::is_integral_v<Number> || text.find_first_not_of("+-0123456789") == std::string::npos;
    if (end != text.c_str() && *end == '\0' && is_whole && number >= low && number <= high) return "";
    return fmt::format("expected a {}number from {} to {}, found \"{}\"",
                       std::is_integral_v<Number> ? "whole " : "", low, high, text);
  };
  return app.add_option(names, value, help)->check(CLI::Validator(check, ""));
}

/// An option whose text `parse` turns into an amount (see sizes.h).
void add_amount(CLI::App& app, const std::string& names, int64_t& value, int64_t (*parse)(std::string_view),
                const std::string& help);

}  // namespace fathom::cli
