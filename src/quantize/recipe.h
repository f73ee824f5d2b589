// Which encoding each tensor of an output pack gets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/pack.h"
#include "model/tensor_shapes.h"

namespace fathom {

/// A type by the name that recipes use ("Q2_K", "fp8"; case does not matter): those of GGUF, FP8 (e4m3 in
/// tiles of 32x32, or rows of tables) and FP4 (e2m1, a scale for 32 columns). Nothing for an unknown name.
std::optional<DType> recipe_type(std::string_view name);
std::string recipe_type_name(DType type);

/// What a dialect stores without a rule saying otherwise. Immutable; any thread may read.
class Recipe {
 public:
  /// A built-in recipe (q2, q4, q8, mxfp4, lossless, official) or the path of a recipe file;
  /// docs/quantize.md has their tables and the format.
  static Result<Recipe> load(const std::string& name_or_path);
  /// `origin` names the text in errors, which name the line.
  static Result<Recipe> parse(std::string_view text, const std::string& origin);
  static const std::vector<std::string>& names();

  /// Encoding of a tensor (or of an Engram table: `is_table`). kInvalidArgument naming tensor, width and
  /// block when a rule's type does not fit the width and the recipe has no fallback, or when the dialect
  /// cannot store the type. `note`, if given, gets a line when a fallback was taken.
  Result<DType> type_of(const TensorShape& tensor, PackDialect dialect, bool is_table = false,
                        std::string* note = nullptr) const;

  const std::string& name() const { return name_; }

 private:
  enum class Experts { kQ2, kQ4, kQ8, kMxfp4 };
  struct Rule {
    std::string pattern;
    DType type;
    int line;
  };
  Result<void> choose_base(std::string_view name);
  Result<void> parse_line(std::string_view line, int number, const std::string& origin);
  DType base_type(const TensorShape& tensor, PackDialect dialect, bool is_table) const;

  std::string name_;
  Experts experts_ = Experts::kMxfp4;
  bool lossless_ = false;
  std::vector<Rule> rules_;        // the first that matches counts
  std::optional<DType> fallback_;  // of rules
};

/// Whether `pattern` (with * for any run of characters and ? for one) matches all of `text`.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace fathom
