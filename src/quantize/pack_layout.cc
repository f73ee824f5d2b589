#include "quantize/pack_layout.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "format/safetensors_writer.h"

namespace fathom {
namespace {

constexpr uint32_t kSplitAlignment = 32;  // what splitters use whatever the whole file had

// First tensor of each file, and the number of tensors as the last entry.
std::vector<size_t> cut(const PackPlan& plan, uint64_t shard_bytes) {
  std::vector<size_t> firsts = {0};
  uint64_t used = 0;
  for (size_t index = 0; index < plan.stored.size(); ++index) {
    const uint64_t bytes = plan.stored[index].bytes;
    if (shard_bytes > 0 && used > 0 && used + bytes > shard_bytes) {
      firsts.push_back(index);
      used = 0;
    }
    used += bytes;
  }
  firsts.push_back(plan.stored.size());
  return firsts;
}

void place(const PackPlan& plan, size_t first, size_t end, uint64_t alignment, PackLayout& layout) {
  PackFileLayout& file = layout.files.back();
  file.size_bytes = file.header.size();
  for (size_t index = first; index < end; ++index) {
    const uint64_t bytes = plan.stored[index].bytes;
    const uint64_t padding = (alignment - bytes % alignment) % alignment;
    layout.placed.push_back(
        {.file = layout.files.size() - 1, .offset_bytes = file.size_bytes, .padding_bytes = padding});
    file.size_bytes += bytes + padding;
  }
}

}  // namespace

Result<PackLayout> layout_safetensors(const PackPlan& plan, const std::string& folder,
                                      const std::map<std::string, std::string>& metadata,
                                      uint64_t shard_bytes) {
  const std::filesystem::path root(folder);
  PackLayout layout{.output = folder, .is_folder = true};
  const std::vector<size_t> firsts = cut(plan, shard_bytes);
  const size_t count = firsts.size() - 1;
  nlohmann::json index = {{"weight_map", nlohmann::json::object()}};
  for (size_t file = 0; file < count; ++file) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, count);
    std::vector<SafetensorsPlan> tensors;
    for (size_t at = firsts[file]; at < firsts[file + 1]; ++at) {
      tensors.push_back({plan.stored[at].name, plan.stored[at].type, plan.stored[at].shape});
      index["weight_map"][plan.stored[at].name] = name;
    }
    const std::string path = (root / name).string();
    FATHOM_ASSIGN(std::string header, safetensors_header(path, tensors, metadata));
    layout.files.push_back({.path = path, .header = std::move(header)});
    place(plan, firsts[file], firsts[file + 1], 1, layout);
  }
  index["metadata"] = {{"total_size", plan.data_bytes()}};
  layout.texts.emplace_back((root / "model.safetensors.index.json").string(), index.dump(1) + "\n");
  return layout;
}

Result<PackLayout> layout_gguf(const PackPlan& plan, const std::string& path, uint64_t shard_bytes,
                               const std::function<void(GgufWriter&)>& add_keys) {
  const std::vector<size_t> firsts = cut(plan, shard_bytes);
  const size_t count = firsts.size() - 1;
  PackLayout layout;
  for (size_t file = 0; file < count; ++file) {
    const uint64_t alignment = shard_bytes > 0 ? kSplitAlignment : alignment_of(plan.dialect);
    GgufWriter writer(static_cast<uint32_t>(alignment));
    std::string name = path;
    if (file == 0) add_keys(writer);
    if (shard_bytes > 0) {
      name = fmt::format("{}-{:05}-of-{:05}.gguf", path.substr(0, path.size() - 5), file + 1, count);
      writer.add_u16("split.no", static_cast<uint16_t>(file));
      writer.add_u16("split.count", static_cast<uint16_t>(count));
      writer.add_i32("split.tensors.count", static_cast<int32_t>(plan.stored.size()));
    }
    for (size_t at = firsts[file]; at < firsts[file + 1]; ++at)
      writer.add_tensor(plan.stored[at].name, plan.stored[at].type, plan.stored[at].shape);
    FATHOM_ASSIGN(std::string header, writer.header(name));
    layout.files.push_back({.path = name, .header = std::move(header)});
    place(plan, firsts[file], firsts[file + 1], alignment, layout);
  }
  layout.output = layout.files.front().path;
  return layout;
}

}  // namespace fathom
