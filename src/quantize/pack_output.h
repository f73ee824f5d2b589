// Everything of an output pack but its rows: dialect, config, tokenizer, keys, layout, files, names.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "quantize/pack_keys.h"
#include "quantize/pack_plan.h"
#include "quantize/pack_stream.h"
#include "quantize/pack_writer.h"

namespace fathom {

/// "official", "ds4" or "llama.cpp".
Result<PackDialect> parse_output_dialect(std::string_view name);

struct OutputOptions {
  std::string output;        // a folder (official), or a file ending in .gguf
  std::string dialect;       // empty: ds4 for a name that ends in .gguf, else official
  uint64_t shard_bytes = 0;  // 0: one GGUF; 10 GB a shard of official packs
  std::string source_url;    // for the keys of a GGUF
  std::string source_revision;
  int threads = 0;  // 0: one a core
  bool restart = false;
  bool with_checksums = true;
  uint64_t journal_interval_bytes = uint64_t{64} << 20;
  ProgressFn progress;
};
Result<PackDialect> dialect_of(const OutputOptions& options);

struct OutputReport {
  std::string path;           // of what was written
  std::string checksum_path;  // empty: none
  uint64_t bytes = 0;
  uint64_t hole_bytes = 0;     // of them are left out
  uint64_t resumed_bytes = 0;  // that an interrupted run had finished
  int64_t tensors = 0;
  std::vector<std::string> notes;  // fallbacks that were taken
};

class OutputPack {
 public:
  /// `tokenizer_json` is written as it is into an official pack; empty: made from keys.vocabulary. `keys`
  /// must have config, and for a GGUF vocabulary and token map. Borrows `plan`.
  static Result<OutputPack> open(const PackPlan& plan, KeyInputs keys, const std::string& tokenizer_json,
                                 const std::string& identity, const OutputOptions& options);
  /// Makes and writes all units, then gives the files their names.
  Result<OutputReport> write(RowSource& source, std::string_view stage);

 private:
  OutputPack(const PackPlan& plan, const OutputOptions& options) : plan_(&plan), options_(options) {}
  const PackPlan* plan_;
  OutputOptions options_;
  OutputReport report_;
  std::unique_ptr<PackWriter> writer_;
};

}  // namespace fathom
