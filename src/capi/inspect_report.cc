#include <nlohmann/json.hpp>

#include "capi/inspect.h"

namespace fathom::capi {
namespace {

using Json = nlohmann::ordered_json;

// More than this many lines of one kind say nothing more to a reader; the JSON has them all.
constexpr size_t kLinesMax = 20;

void add_list(std::string& text, std::string_view title, const std::vector<std::string>& lines) {
  text += fmt::format("\n{}: {}\n", title, lines.empty() ? "none" : std::to_string(lines.size()));
  for (size_t index = 0; index < lines.size() && index < kLinesMax; ++index)
    text += fmt::format("  {}\n", lines[index]);
  if (lines.size() > kLinesMax) text += fmt::format("  and {} more\n", lines.size() - kLinesMax);
}

std::string joined(const std::vector<int>& values) { return fmt::format("{}", fmt::join(values, ",")); }

void add_config(std::string& text, const ModelConfig& c) {
  text += "\nConfig\n";
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<22}{}\n", name, value);
  };
  line("layers", fmt::format("{} ({} encoder, {} decoder)", c.num_layers, c.encoder_layers(),
                             c.num_layers - c.encoder_layers()));
  line("hidden", fmt::format("{} in {} streams", c.hidden_size, c.hc_mult));
  line("attention", fmt::format("{} heads of {} ({} rotated), window {}", c.num_heads, c.head_dim, c.rope_dim,
                                c.sliding_window));
  line("compression ratios", joined(c.compress_ratios));
  line("KV sources", joined(c.kv_source_layer_ids));
  line("index sources", fmt::format("{}, {} heads of {}, {} rows", joined(c.index_source_layer_ids),
                                    c.index_heads, c.index_head_dim, c.index_topk));
  if (c.candidate_source_layer_id >= 0)
    line("candidates", fmt::format("layer {}, {} blocks of {}", c.candidate_source_layer_id,
                                   c.candidate_topk_blocks, c.candidate_block_size));
  line("experts", fmt::format("{} routed of {}, {} a token, {} shared", c.routed_experts,
                              c.moe_intermediate_size, c.experts_per_token, c.shared_experts));
  line("vocabulary", fmt::format("{}", c.vocab_size));
  line("context", fmt::format("{} tokens", c.max_position_embeddings));
  if (!c.engram.layer_ids.empty())
    line("Engram", fmt::format("layers {}, 2- to {}-grams, {} heads of {}", joined(c.engram.layer_ids),
                               c.engram.max_ngram, c.engram.heads, c.engram.head_dim));
  if (c.draft.stages > 0)
    line("draft", fmt::format("{} stages, blocks of {}", c.draft.stages, c.draft.block_size));
}

void add_tensors(std::string& text, const Inspection& inspection) {
  text += "\nTensors\n";
  for (const auto& [group, types] : inspection.groups) {
    for (const auto& [type, sum] : types)
      text += fmt::format("  {:<22}{:<12}{:>8} tensors{:>14}\n", group, type, sum.tensors,
                          format_bytes(sum.bytes));
  }
}

void add_reads(std::string& text, const Inspection& inspection) {
  for (const TokenReads& reads : inspection.reads) {
    text += fmt::format("\nRead for one decoded token at position {}: {}\n", reads.position,
                        format_bytes(reads.total_bytes()));
    text += fmt::format("  {:<22}{:>12}\n", "dense", format_bytes(reads.dense_bytes));
    text += fmt::format("  {:<22}{:>12}\n", "chosen experts", format_bytes(reads.expert_bytes));
    text += fmt::format("  {:<22}{:>12}\n", "head, embedding row", format_bytes(reads.embedding_bytes));
    text += fmt::format("  {:<22}{:>12}\n", "Engram rows (disk)", format_bytes(reads.engram_bytes));
    text += fmt::format("  {:<22}{:>12}\n", "KV and index keys", format_bytes(reads.kv_bytes));
  }
}

void add_engram(std::string& text, const Inspection& inspection) {
  if (inspection.config.engram.layer_ids.empty()) return;
  text += "\nEngram\n";
  for (size_t index = 0; index < inspection.tables.size(); ++index) {
    const EngramTableInfo& table = inspection.tables[index];
    text += fmt::format("  table {}: {} rows of {} ({}), {} bytes a row at {} of {}\n", index, table.rows,
                        table.width, dtype_name(table.type), table.data.row_bytes, table.data.offset_bytes,
                        table.data.path);
  }
  const EngramDigests& digests = inspection.digests;
  text += fmt::format("  compressed vocabulary   {}\n", digests.compressed_vocab_size);
  text += fmt::format("  token map, SHA-256      {}\n", digests.token_map);
  text += fmt::format("  multipliers, SHA-256    {}\n", digests.multipliers);
  text += fmt::format("  primes, SHA-256         {}\n", digests.primes);
  text += fmt::format("  offsets, SHA-256        {}\n", digests.offsets);
}

Json config_json(const ModelConfig& c) {
  return {{"layers", c.num_layers},
          {"encoder_layers", c.encoder_layers()},
          {"hidden_size", c.hidden_size},
          {"heads", c.num_heads},
          {"head_dim", c.head_dim},
          {"sliding_window", c.sliding_window},
          {"compress_ratios", c.compress_ratios},
          {"kv_source_layer_ids", c.kv_source_layer_ids},
          {"index_source_layer_ids", c.index_source_layer_ids},
          {"routed_experts", c.routed_experts},
          {"experts_per_token", c.experts_per_token},
          {"shared_experts", c.shared_experts},
          {"moe_intermediate_size", c.moe_intermediate_size},
          {"vocab_size", c.vocab_size},
          {"max_position_embeddings", c.max_position_embeddings},
          {"engram_layer_ids", c.engram.layer_ids},
          {"draft_stages", c.draft.stages}};
}

Json engram_json(const Inspection& inspection) {
  Json tables = Json::array();
  for (const EngramTableInfo& table : inspection.tables)
    tables.push_back({{"type", std::string(dtype_name(table.type))},
                      {"rows", table.rows},
                      {"width", table.width},
                      {"path", table.data.path},
                      {"offset_bytes", table.data.offset_bytes},
                      {"stride_bytes", table.data.stride_bytes},
                      {"row_bytes", table.data.row_bytes}});
  const EngramDigests& digests = inspection.digests;
  return {{"tables", std::move(tables)},
          {"compressed_vocab_size", digests.compressed_vocab_size},
          {"token_map_sha256", digests.token_map},
          {"token_map_u32_sha256", digests.token_map_u32},
          {"multipliers_sha256", digests.multipliers},
          {"primes_sha256", digests.primes},
          {"offsets_sha256", digests.offsets}};
}

}  // namespace

std::string inspection_text(const Inspection& inspection) {
  std::string text = fmt::format("{}: {}\n", inspection.path, dialect_name(inspection.dialect));
  int64_t bytes = 0;
  for (const PackFile& file : inspection.files) bytes += static_cast<int64_t>(file.size_bytes);
  text += fmt::format("{} file{}, {}\n", inspection.files.size(), inspection.files.size() == 1 ? "" : "s",
                      format_bytes(bytes));
  text +=
      fmt::format("tokenizer: {}\n", inspection.tokenizer_path.empty() ? "none" : inspection.tokenizer_path);
  if (inspection.config.synthetic)
    text += fmt::format("made up: random weights of fathom synth{}\n",
                        inspection.config.engram.sparse ? "; Engram tables are holes that read as zeros" : "");
  add_config(text, inspection.config);
  add_tensors(text, inspection);
  add_reads(text, inspection);
  add_engram(text, inspection);
  add_list(text, "Unexpected tensors", inspection.audit.unexpected);
  add_list(text, "Problems", inspection.problems);
  return text;
}

std::string inspection_json(const Inspection& inspection) {
  Json root = {{"path", inspection.path},
               {"dialect", std::string(dialect_name(inspection.dialect))},
               {"tokenizer", inspection.tokenizer_path},
               {"synthetic", inspection.config.synthetic},
               {"sparse_engram", inspection.config.engram.sparse},
               {"has_draft", inspection.audit.has_draft},
               {"has_vision", inspection.audit.has_vision},
               {"config", config_json(inspection.config)},
               {"files", Json::array()},
               {"groups", Json::array()},
               {"reads_per_token", Json::array()}};
  for (const PackFile& file : inspection.files)
    root["files"].push_back(
        {{"path", file.path}, {"size_bytes", file.size_bytes}, {"allocated_bytes", file.allocated_bytes}});
  for (const auto& [group, types] : inspection.groups) {
    for (const auto& [type, sum] : types)
      root["groups"].push_back(
          {{"group", group}, {"type", type}, {"tensors", sum.tensors}, {"bytes", sum.bytes}});
  }
  for (const TokenReads& reads : inspection.reads)
    root["reads_per_token"].push_back({{"position", reads.position},
                                       {"dense_bytes", reads.dense_bytes},
                                       {"expert_bytes", reads.expert_bytes},
                                       {"embedding_bytes", reads.embedding_bytes},
                                       {"engram_bytes", reads.engram_bytes},
                                       {"kv_bytes", reads.kv_bytes},
                                       {"total_bytes", reads.total_bytes()}});
  if (!inspection.config.engram.layer_ids.empty()) root["engram"] = engram_json(inspection);
  root["missing"] = inspection.audit.missing;
  root["unexpected"] = inspection.audit.unexpected;
  root["problems"] = inspection.problems;
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fathom::capi
