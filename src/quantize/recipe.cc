#include "quantize/recipe.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/file.h"
#include "quantize/encode.h"

namespace fathom {
namespace {

constexpr uint64_t kRecipeLimitBytes = 1 << 20;

// Types that exist in safetensors of the release only; GGUF types are found by their own name.
constexpr std::pair<std::string_view, DType> kOwnNames[] = {{"FP8", DType::kFp8Tile32},
                                                            {"FP4", DType::kFp4Row32}};

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

// What each container stores by default. `suffix` is the end of an official name; the first that fits counts.
struct BaseTypes {
  std::string_view suffix;
  DType official, ds4, llama_cpp, lossless;
};
using enum DType;
constexpr BaseTypes kBase[] = {
    {"hc_attn_fn", kF32, kF16, kF32, kF32},
    {"hc_ffn_fn", kF32, kF16, kF32, kF32},
    {"hc_attn_base", kF32, kF32, kF32, kF32},
    {"hc_attn_scale", kF32, kF32, kF32, kF32},
    {"hc_ffn_base", kF32, kF32, kF32, kF32},
    {"hc_ffn_scale", kF32, kF32, kF32, kF32},
    {"attn_sink", kF32, kF32, kF32, kF32},
    {"gate.bias", kF32, kF32, kF32, kF32},
    {"gate.bias_vl", kF32, kF32, kF32, kF32},
    {"norm.weight", kBF16, kF32, kF32, kF32},  // of every kind
    {"confidence_head.proj.weight", kBF16, kF32, kF32, kF32},
    {"markov_head.embed.weight", kBF16, kQ8_0, kQ8_0, kBF16},
    {"markov_head.head.weight", kBF16, kQ8_0, kQ8_0, kBF16},
    {"engram.embed.weight", kFp8Tile32, kFp8Tile32, kQ8_0, kBF16},
    {"embed.weight", kBF16, kF16, kBF16, kBF16},
    {"head.weight", kBF16, kQ8_0, kBF16, kBF16},
    {"ffn.gate.weight", kBF16, kF32, kBF16, kBF16},
    {"engram.q_weight", kBF16, kF32, kBF16, kF32},
    {"engram.k_weight", kBF16, kF32, kBF16, kF32},
    {"engram.wkv.weight", kFp8Tile32, kF16, kQ8_0, kBF16},
    {"compressor.wkv.weight", kBF16, kF16, kBF16, kBF16},
    {"compressor.wgate.weight", kBF16, kF16, kBF16, kBF16},
    {"indexer.wk.weight", kBF16, kF16, kBF16, kBF16},
    {"indexer.weights_proj.weight", kBF16, kF16, kBF16, kBF16},
    {"indexer.wq_b.weight", kFp8Tile32, kF16, kQ8_0, kBF16},
    {"", kFp8Tile32, kQ8_0, kQ8_0, kBF16},  // attention, shared experts, main_proj
};

bool is_plain_float(DType type) { return type == kF32 || type == kF16 || type == kBF16; }

bool dialect_stores(PackDialect dialect, DType type, bool is_vector, bool is_table) {
  if (is_plain_float(type)) return dialect != PackDialect::kDs4Gguf || !is_table;
  if (is_vector) return false;
  if (type == kFp8Tile32)
    return dialect == PackDialect::kOfficial || (is_table && dialect == PackDialect::kDs4Gguf);
  if (type == kFp4Row32) return dialect == PackDialect::kOfficial && !is_table;
  return dialect != PackDialect::kOfficial && can_encode(type) &&
         !(is_table && dialect == PackDialect::kDs4Gguf);
}

std::string_view storing_name(PackDialect dialect) {
  return dialect == PackDialect::kOfficial ? "official safetensors" : dialect_name(dialect);
}

int block_of(DType type) {
  if (type == kFp4Row32) return 32;
  return std::max(1, dtype_info(type).block_elements);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

std::optional<DType> recipe_type(std::string_view name) {
  const std::string wanted = upper(name);
  for (const auto& [known, type] : kOwnNames)
    if (known == wanted) return type;
  for (int value = 0; value <= static_cast<int>(kMXFP4); ++value) {
    const DType type = static_cast<DType>(value);
    if (can_encode(type) && dtype_name(type) == wanted) return type;
  }
  return std::nullopt;
}

std::string recipe_type_name(DType type) {
  for (const auto& [known, own] : kOwnNames)
    if (own == type) return std::string(known);
  return std::string(dtype_name(type));
}

bool glob_matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

const std::vector<std::string>& Recipe::names() {
  static const std::vector<std::string> kNames = {"q2", "q4", "q8", "mxfp4", "lossless"};
  return kNames;
}

Result<void> Recipe::choose_base(std::string_view name) {
  lossless_ = name == "lossless";
  if (name == "q2") {
    experts_ = Experts::kQ2;
  } else if (name == "q4") {
    experts_ = Experts::kQ4;
  } else if (name == "q8") {
    experts_ = Experts::kQ8;
  } else if (name == "mxfp4" || lossless_) {
    experts_ = Experts::kMxfp4;
  } else {
    return Error::invalid("recipe: expected one of {}, or a file, found \"{}\"", fmt::join(names(), ", "),
                          name);
  }
  return {};
}

Result<Recipe> Recipe::load(const std::string& name_or_path) {
  Recipe recipe;
  recipe.name_ = name_or_path;
  if (std::find(names().begin(), names().end(), name_or_path) != names().end() ||
      !file_exists(name_or_path)) {
    FATHOM_TRY(recipe.choose_base(name_or_path));
    return recipe;
  }
  FATHOM_ASSIGN(const std::string text, read_text_file(name_or_path, kRecipeLimitBytes));
  return parse(text, name_or_path);
}

Result<Recipe> Recipe::parse(std::string_view text, const std::string& origin) {
  Recipe recipe;
  recipe.name_ = origin.substr(origin.rfind('/') + 1);
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    FATHOM_TRY(recipe.parse_line(trimmed(line.substr(0, line.find('#'))), number, origin));
  }
  return recipe;
}

Result<void> Recipe::parse_line(std::string_view line, int number, const std::string& origin) {
  if (line.empty()) return {};
  const size_t space = line.find_first_of(" \t");
  const std::string_view first = line.substr(0, space);
  const std::string_view second =
      space == std::string_view::npos ? std::string_view() : trimmed(line.substr(space));
  if (second.empty() || second.find_first_of(" \t") != std::string_view::npos)
    return Error::invalid("{}:{}: expected a pattern and a type, found \"{}\"", origin, number, line);
  if (first == "base") {
    if (auto chosen = choose_base(second); !chosen.ok())
      return Error::invalid("{}:{}: {}", origin, number, chosen.error().message);
    return {};
  }
  const std::optional<DType> type = recipe_type(second);
  if (!type) return Error::invalid("{}:{}: unknown type \"{}\"", origin, number, second);
  if (first == "fallback") {
    fallback_ = *type;
  } else {
    rules_.push_back({std::string(first), *type, number});
  }
  return {};
}

DType Recipe::base_type(const TensorShape& tensor, PackDialect dialect, bool is_table) const {
  const bool is_official = dialect == PackDialect::kOfficial;
  if (tensor.experts > 0) {
    if (is_official) return kFp4Row32;
    switch (experts_) {
      case Experts::kQ2: return tensor.name.ends_with("w2.weight") ? kQ2_K : kIQ2_XXS;
      case Experts::kQ4: return kQ4_K;
      case Experts::kQ8: return kQ8_0;
      case Experts::kMxfp4: return kMXFP4;
    }
  }
  for (const BaseTypes& base : kBase) {
    if (!tensor.name.ends_with(base.suffix)) continue;
    if (is_official) return base.official;
    if (lossless_) return is_table && dialect == PackDialect::kDs4Gguf ? base.ds4 : base.lossless;
    return dialect == PackDialect::kDs4Gguf ? base.ds4 : base.llama_cpp;
  }
  return kF32;
}

Result<DType> Recipe::type_of(const TensorShape& tensor, PackDialect dialect, bool is_table,
                              std::string* note) const {
  const auto rule = std::find_if(rules_.begin(), rules_.end(), [&](const Rule& candidate) {
    return glob_matches(candidate.pattern, tensor.name);
  });
  const bool has_rule = rule != rules_.end();
  const DType wanted = has_rule ? rule->type : base_type(tensor, dialect, is_table);
  const auto where = [&] { return has_rule ? fmt::format("{}:{}", name_, rule->line) : name_; };
  if (!dialect_stores(dialect, wanted, tensor.is_vector, is_table))
    return Error::invalid("recipe {}: tensor {}: {} cannot be stored in {} as {}", where(), tensor.name,
                          recipe_type_name(wanted), storing_name(dialect),
                          is_table           ? "an Engram table"
                          : tensor.is_vector ? "a vector (F32, F16 or BF16 can)"
                                             : "a matrix");
  if (tensor.cols % block_of(wanted) == 0) return wanted;
  std::vector<DType> instead;
  if (!has_rule) instead = {kQ8_0, kF16};
  if (has_rule && fallback_) instead = {*fallback_};
  for (const DType type : instead) {
    if (tensor.cols % block_of(type) != 0 || !dialect_stores(dialect, type, tensor.is_vector, is_table))
      continue;
    if (note != nullptr)
      *note = fmt::format("{}: {} instead of {}: rows of {} are no whole blocks of {}", tensor.name,
                          recipe_type_name(type), recipe_type_name(wanted), tensor.cols, block_of(wanted));
    return type;
  }
  return Error::invalid("recipe {}: tensor {}: rows of {} are no whole blocks of {}, which {} has", where(),
                        tensor.name, tensor.cols, block_of(wanted), recipe_type_name(wanted));
}

}  // namespace fathom
