// A text that a model is run over: from a file, as text or as token ids.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "fathom/fathom.h"

namespace fathom::cli {

struct TextSource {
  std::string text_file, token_file;  // one of them
  bool parse_special = false;
  int64_t limit_tokens = 0;  // 0: all

  void add(CLI::App& app);
  /// Name for reports.
  const std::string& name() const { return text_file.empty() ? token_file : text_file; }
  /// Throws Failure.
  std::vector<int32_t> read(const fathom_tokenizer* tokenizer) const;
};

}  // namespace fathom::cli
