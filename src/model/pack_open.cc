// Opening a pack: which dialect it is, its config, its files, its names.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_depth.h"
#include "format/safetensors.h"
#include "model/config_gguf.h"
#include "model/pack_impl.h"
#include "model/pack_names.h"

namespace fathom {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr uint64_t kConfigLimitBytes = uint64_t{64} << 20;

// Official names, and what inspect shows. Two stored names of one official name are a fault.
Result<void> name_tensors(Pack::Impl& pack, Problems* problems) {
  const bool is_gguf = pack.dialect == PackDialect::kDs4Gguf || pack.dialect == PackDialect::kLlamaCppGguf;
  const bool is_official = pack.dialect == PackDialect::kOfficial;
  for (size_t i = 0; i < pack.store.tensors.size(); ++i) {
    const TensorEntry& tensor = pack.store.tensors[i];
    const std::string official = is_gguf       ? official_from_gguf(tensor.name)
                                 : is_official ? tensor.name
                                               : official_from_mlx(tensor.name);
    pack.tensors.push_back({.name = official.empty() ? tensor.name : official,
                            .stored_name = tensor.name,
                            .type_name = tensor.type_name,
                            .shape = tensor.shape,
                            .file = tensor.file,
                            .offset_bytes = tensor.offset_bytes,
                            .size_bytes = tensor.size_bytes});
    if (official.empty()) continue;
    const auto [present, added] = pack.by_name.emplace(official, i);
    if (added) continue;
    FATHOM_TRY(report_problem(
        problems, Error::bad_pack("{}: tensors {} and {} are both {}", pack.path_of(tensor),
                                  pack.store.tensors[present->second].name, tensor.name, official)));
  }
  return {};
}

Result<void> list_files(Pack::Impl& pack) {
  for (const MappedFile& file : pack.store.files) {
    FATHOM_ASSIGN(const FileInfo info, file_info(file.path()));
    pack.files.push_back(
        {.path = file.path(), .size_bytes = info.size_bytes, .allocated_bytes = info.allocated_bytes});
  }
  return {};
}

Result<void> check_fp8_config(const Json& quantization, const std::string& where) {
  const auto require = [&](const char* field, const Json& expected) -> Result<void> {
    const auto found = quantization.find(field);
    if (found == quantization.end() || *found == expected) return {};
    return Error::unsupported("{}: quantization_config.{}: expected {}, found {}", where, field,
                              expected.dump(),
                              found->dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60));
  };
  FATHOM_TRY(require("quant_method", "fp8"));
  FATHOM_TRY(require("weight_block_size", Json::array({32, 32})));
  FATHOM_TRY(require("scale_fmt", "ue8m0"));
  return require("expert_dtype", "fp4");
}

Result<PackDialect> safetensors_dialect(const Json& root, const std::string& where) {
  if (root.contains("expert_quant"))
    return Error::unsupported("{}: expert_quant: trellis-coded experts (EXL3, STQ) are not supported", where);
  if (root.contains("omlx_deepseek_v41")) return PackDialect::kOMlx;
  if (root.contains("quantization")) return PackDialect::kMlx;
  const auto quantization = root.find("quantization_config");
  if (quantization != root.end() && quantization->is_object())
    FATHOM_TRY(check_fp8_config(*quantization, where));
  return PackDialect::kOfficial;
}

Result<void> refuse_trellis(const TensorFiles& store) {
  for (const TensorEntry& tensor : store.tensors) {
    if (tensor.name.ends_with(".trellis"))
      return Error::unsupported("{}: tensor {}: trellis-coded weights (EXL3, STQ) are not supported",
                                store.files[static_cast<size_t>(tensor.file)].path(), tensor.name);
  }
  return {};
}

int small_integer(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_number_integer()) return 0;
  const int64_t value = found->get<int64_t>();
  return value > 0 && value < 1 << 16 ? static_cast<int>(value) : -1;
}

ModuleQuantization module_quantization(const Json& said) {
  ModuleQuantization module;
  if (said.is_boolean()) {
    module.dense = !said.get<bool>();
    return module;
  }
  module.bits = small_integer(said, "bits");
  module.group = small_integer(said, "group_size");
  if (const auto mode = said.find("mode"); mode != said.end() && mode->is_string())
    module.mode = mode->get<std::string>();
  if (const auto input = said.find("quantize_input"); input != said.end() && input->is_boolean())
    module.quantize_input = input->get<bool>();
  return module;
}

void read_modules(const Json& modules, Pack::Impl& pack) {
  for (const auto& [name, said] : modules.items()) {
    if (said.is_object() || said.is_boolean())
      pack.modules[official_from_mlx(name)] = module_quantization(said);
  }
}

bool is_plain_name(const std::string& file) {
  return !file.empty() && file != ".." &&
         file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

// Tables may lie in files outside the index, under keys of their own.
Result<void> read_omlx_tables(const Json& tables, const fs::path& folder, const std::string& where,
                              Pack::Impl& pack, std::vector<std::pair<std::string, std::string>>& renamed,
                              Problems* problems) {
  for (const auto& [module, said] : tables.items()) {
    if (!said.is_object()) return Error::bad_pack("{}: engram_tables.{}: expected an object", where, module);
    const auto text = [&](const char* field) {
      const auto found = said.find(field);
      return found != said.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    for (const char* field : {"weight_file", "scale_file", "bias_file"}) {
      const std::string file = text(field);
      if (file.empty()) continue;
      if (!is_plain_name(file))
        return Error::bad_pack("{}: engram_tables.{}.{}: \"{}\" is not a plain file name", where, module,
                               field, file);
      const std::string path = (folder / file).string();
      bool is_open = false;
      for (const MappedFile& open : pack.store.files)
        is_open |= fs::path(open.path()).filename() == fs::path(path).filename();
      if (!is_open) FATHOM_TRY(add_safetensors_file(pack.store, path, problems));
    }
    const std::string official = official_from_mlx(module);
    renamed.emplace_back(text("weight_key"), official + ".weight");
    renamed.emplace_back(text("scale_key"), official + ".scales");
    renamed.emplace_back(text("bias_key"), official + ".biases");
    pack.modules[official] = module_quantization(said);
  }
  return {};
}

Result<void> read_mlx_config(const Json& root, const fs::path& folder, const std::string& where,
                             Pack::Impl& pack, Problems* problems) {
  if (const auto general = root.find("quantization"); general != root.end() && general->is_object())
    read_modules(*general, pack);
  std::vector<std::pair<std::string, std::string>> renamed;
  if (const auto omlx = root.find("omlx_deepseek_v41"); omlx != root.end() && omlx->is_object()) {
    if (const auto modules = omlx->find("quantized_modules"); modules != omlx->end() && modules->is_object())
      read_modules(*modules, pack);
    if (const auto tables = omlx->find("engram_tables"); tables != omlx->end() && tables->is_object())
      FATHOM_TRY(read_omlx_tables(*tables, folder, where, pack, renamed, problems));
  }
  FATHOM_TRY(name_tensors(pack, problems));
  for (const auto& [key, official] : renamed) {
    if (key.empty()) continue;
    const auto found = pack.store.index.find(key);
    if (found == pack.store.index.end()) {
      FATHOM_TRY(report_problem(
          problems, Error::bad_pack("{}: engram_tables names a tensor {} that is not there", where, key)));
      continue;
    }
    pack.by_name[official] = found->second;
    pack.tensors[found->second].name = official;
  }
  return {};
}

Result<void> open_safetensors_pack(const std::string& path, const fs::path& folder, Pack::Impl& pack,
                                   Problems* problems) {
  const std::string config_path = (folder / "config.json").string();
  if (file_exists((folder / "conversion.inprogress.json").string()))
    FATHOM_TRY(report_problem(
        problems,
        Error::bad_pack("{}: conversion.inprogress.json is left over: the conversion did not finish",
                        folder.string())));
  FATHOM_ASSIGN(const std::string text, read_text_file(config_path, kConfigLimitBytes));
  if (json_is_deeper_than(text, kPackJsonDepthMax))
    return Error::bad_pack("{}: nested deeper than {} levels", config_path, kPackJsonDepthMax);
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded() || !root.is_object()) return Error::bad_pack("{}: not a JSON object", config_path);
  FATHOM_ASSIGN(pack.dialect, safetensors_dialect(root, config_path));
  FATHOM_ASSIGN(pack.config, config_from_json(text, config_path));
  FATHOM_ASSIGN(pack.store, open_safetensors(path, problems));
  FATHOM_TRY(refuse_trellis(pack.store));
  if (pack.dialect == PackDialect::kOfficial) return name_tensors(pack, problems);
  return read_mlx_config(root, folder, config_path, pack, problems);
}

Result<void> open_gguf_pack(const std::string& path, Pack::Impl& pack, Problems* problems) {
  FATHOM_ASSIGN(GgufFile file, open_gguf(path, problems));
  FATHOM_ASSIGN(pack.dialect, gguf_dialect(file));
  if (file.keys.has("deepseek41.engram.storage")) {
    FATHOM_ASSIGN(const std::string_view storage, file.keys.string("deepseek41.engram.storage"));
    if (storage == "external")
      return Error::unsupported("{}: deepseek41.engram.storage: tables in side files are not supported",
                                path);
  }
  FATHOM_ASSIGN(pack.config, config_from_gguf(file, pack.dialect));
  FATHOM_ASSIGN(pack.constants, engram_constants_from_gguf(file, pack.config));
  if (file.keys.has("deepseek41.engram.encoding")) {
    FATHOM_ASSIGN(pack.engram_encoding, file.keys.string("deepseek41.engram.encoding"));
  }
  if (file.keys.has("tokenizer.ggml.tokens")) pack.tokenizer = {.path = path, .is_gguf = true};
  pack.store = std::move(file.store);
  return name_tensors(pack, problems);
}

}  // namespace

Result<Pack> open_pack(const std::string& path, const PackOptions& options) {
  FATHOM_ASSIGN(const FileInfo info, file_info(path));
  auto pack = std::make_unique<Pack::Impl>();
  const fs::path folder = info.is_directory ? fs::path(path) : fs::path(path).parent_path();
  if (!info.is_directory && path.ends_with(".gguf")) {
    FATHOM_TRY(open_gguf_pack(path, *pack, options.problems));
  } else if (info.is_directory || path.ends_with(".safetensors") ||
             path.ends_with(".safetensors.index.json")) {
    FATHOM_TRY(open_safetensors_pack(path, folder, *pack, options.problems));
  } else {
    return Error::invalid("{}: expected a folder, a .safetensors, a .safetensors.index.json or a .gguf file",
                          path);
  }
  FATHOM_TRY(list_files(*pack));
  const std::string tokenizer = (folder / "tokenizer.json").string();
  if (pack->tokenizer.path.empty() && file_exists(tokenizer)) pack->tokenizer.path = tokenizer;
  if (!options.engram_path.empty()) {
    FATHOM_ASSIGN(Pack tables,
                  open_pack(options.engram_path, {.problems = options.problems, .engram_path = {}}));
    if (tables.config().engram.rows != pack->config.engram.rows ||
        tables.config().engram.layer_ids != pack->config.engram.layer_ids)
      return Error::bad_pack("{}: its Engram tables have other rows or layers than {}", options.engram_path,
                             path);
    pack->table_pack.emplace(std::move(tables));
  }
  return Pack(std::move(pack));
}

}  // namespace fathom
