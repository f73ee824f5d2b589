#include "engine/memory_plan.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

#include "engine/session.h"
#include "model/model.h"

namespace fathom {
namespace {

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](auto prefix) { return name.starts_with(prefix); });
}

bool contains(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

// Files of /proc and /sys have no size, so they are read as streams. Nothing if there is no such file.
std::optional<std::string> read_system_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The number after `key` in lines of "key number ...".
std::optional<int64_t> number_after(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    int64_t number = 0;
    if (words >> word >> number && word == key) return number;
  }
  return std::nullopt;
}

std::optional<int64_t> whole_number(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  std::istringstream words(*text);
  int64_t number = 0;
  if (!(words >> number)) return std::nullopt;  // "max"
  return number;
}

// What one control group leaves. Clean file pages count as used there but make way, so they are given back.
std::optional<int64_t> group_leaves(const std::string& folder, const char* limit_file,
                                    const char* used_file) {
  const std::optional<int64_t> limit = whole_number(read_system_file(folder + "/" + limit_file));
  const std::optional<int64_t> used = whole_number(read_system_file(folder + "/" + used_file));
  if (!limit || !used) return std::nullopt;
  int64_t pages = 0;
  if (const auto stat = read_system_file(folder + "/memory.stat")) {
    pages = number_after(*stat, "inactive_file").value_or(0) + number_after(*stat, "active_file").value_or(0);
  }
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - pages));
}

// Limits hold along the whole path from the process's group to the root.
int64_t control_groups_leave(const std::string& root) {
  int64_t least = std::numeric_limits<int64_t>::max();
  const std::string base = root + "/sys/fs/cgroup";
  std::istringstream lines(read_system_file(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    const size_t path_begin = line.find(':', colon + 1);
    if (colon == std::string::npos || path_begin == std::string::npos) continue;
    const std::string controllers = line.substr(colon + 1, path_begin - colon - 1);
    const bool second = controllers.empty();  // version 2 has one tree and names no controller
    if (!second && controllers != "memory") continue;
    std::string path = line.substr(path_begin + 1);
    while (true) {
      if (path == "/") path.clear();
      const auto leaves =
          second ? group_leaves(base + path, "memory.max", "memory.current")
                 : group_leaves(base + "/memory" + path, "memory.limit_in_bytes", "memory.usage_in_bytes");
      if (leaves) least = std::min(least, *leaves);
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return least;
}

MemoryPlan plan_at(const ModelConfig& config, const StateShape& shape, const WeightGroups& weights,
                   const MemoryPlanOptions& options) {
  MemoryPlan plan;
  plan.options = options;
  plan.weights = weights;
  plan.rows_bytes = shape.cache_bytes(options.context_tokens) * options.sessions;
  plan.rings_bytes = shape.ring_bytes() * options.sessions;
  plan.tail_bytes = shape.tail_bytes(options.context_tokens) * options.sessions;
  plan.checkpoints_bytes = options.checkpoint_bytes * options.sessions;
  plan.scratch_bytes = step_scratch_bytes(config, shape, options.step_rows);
  if (options.backend != nullptr)
    plan.working_bytes =
        options.backend->working_bytes(work_shape(config, options.step_rows, options.context_tokens));
  plan.engram_fetch_bytes = engram_reader_bytes(config.engram, options.step_rows, options.io_threads);
  // A token's spelling, its merges and their tables; and beside its logit a sampler's copy, count and candidate.
  constexpr int64_t kTokenizerBytes = 150, kSamplerBytes = 16;
  plan.host_bytes = int64_t{config.vocab_size} * (kTokenizerBytes + kSamplerBytes) +
                    options.sessions * (int64_t{config.vocab_size} * 4 + options.context_tokens * 8);
  if (options.is_scheduler) {
    const int64_t score_rows = std::clamp<int64_t>(kScoreLogits / config.vocab_size, 1, options.step_rows);
    plan.host_bytes += int64_t{config.vocab_size} *
                       ((options.sessions - 1) * kSamplerBytes + score_rows * static_cast<int64_t>(sizeof(float)));
  }
  plan.cache_bytes = options.cache_bytes;
  // Beside the queue: a state that is being handed over, and a file that is being read with the state made of it.
  if (options.disk_queue_bytes > 0)
    plan.disk_bytes =
        options.disk_queue_bytes + 3 * (shape.cache_bytes(options.context_tokens) + shape.ring_bytes());
  plan.model_context_tokens = config.max_position_embeddings;
  return plan;
}

// Sizes grow with the context, so the largest that fits is found by halving.
int64_t largest_context(const ModelConfig& config, const StateShape& shape, const MemoryPlan& plan) {
  MemoryPlanOptions options = plan.options;
  const auto fits = [&](int64_t tokens) {
    options.context_tokens = tokens;
    return plan_at(config, shape, plan.weights, options).total_bytes() <= plan.budget_bytes;
  };
  int64_t low = 0;  // fits, or nothing does
  int64_t high = std::max<int64_t>(1, config.max_position_embeddings) + 1;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

int64_t WeightGroups::* weight_group(std::string_view name) {
  if (name.starts_with("mtp.")) return &WeightGroups::draft_bytes;
  if (starts_with_any(name, {"vision.", "aligner.", "image_"})) return &WeightGroups::vision_bytes;
  if (starts_with_any(name, {"embed.", "head."})) return &WeightGroups::embedding_bytes;
  if (name.starts_with("norm.")) return &WeightGroups::dense_bytes;
  if (!name.starts_with("layers.")) return &WeightGroups::other_bytes;
  if (contains(name, ".engram.embed.")) return &WeightGroups::engram_disk_bytes;
  if (contains(name, ".engram.")) return &WeightGroups::engram_projection_bytes;
  if (contains(name, ".ffn.experts.")) return &WeightGroups::expert_bytes;
  return &WeightGroups::dense_bytes;
}

WeightGroups weigh_pack(const Pack& pack) {
  WeightGroups groups;
  for (const PackTensor& tensor : pack.tensors())
    groups.*weight_group(tensor.name) += static_cast<int64_t>(tensor.size_bytes);
  return groups;
}

MemoryPlan plan_memory(const ModelConfig& config, const WeightGroups& weights,
                       const MemoryPlanOptions& options, int64_t budget_bytes) {
  const StateShape shape = make_state_shape(config, options.numerics, options.rewind_tokens);
  MemoryPlan plan = plan_at(config, shape, weights, options);
  plan.budget_bytes = budget_bytes != 0 ? budget_bytes : available_memory_bytes();
  plan.largest_context_tokens = largest_context(config, shape, plan);
  return plan;
}

MemoryPlan plan_memory(const Pack& pack, const MemoryPlanOptions& options, int64_t budget_bytes) {
  return plan_memory(pack.config(), weigh_pack(pack), options, budget_bytes);
}

std::string MemoryPlan::report() const {
  std::string text;
  const auto line = [&](std::string_view what, int64_t bytes, std::string_view note) {
    text += fmt::format("  {:<30}{:>12}{}{}\n", what, format_bytes(bytes), note.empty() ? "" : "  ", note);
  };
  const std::string each = options.sessions == 1 ? "" : fmt::format(" x {} sessions", options.sessions);
  text += "Memory plan\n";
  line("dense weights", weights.dense_bytes, "mapped");
  line("routed experts", weights.expert_bytes, "mapped");
  line("embedding and head", weights.embedding_bytes, "mapped");
  if (weights.engram_disk_bytes > 0) {
    line("Engram projections", weights.engram_projection_bytes, "mapped");
    line("Engram tables", 0, fmt::format("{} stay on disk", format_bytes(weights.engram_disk_bytes)));
  }
  line("KV rows and index keys", rows_bytes, fmt::format("{} tokens{}", options.context_tokens, each));
  line("KV window rings", rings_bytes, each.empty() ? "" : each.substr(1));
  line("prompt tail", tail_bytes, "while a prompt is read");
  if (checkpoints_bytes > 0) line("checkpoints", checkpoints_bytes, "at most");
  if (cache_bytes > 0) line("prefix cache", cache_bytes, "at most");
  if (disk_bytes > 0) line("states to and from the disk", disk_bytes, "at most");
  line("activations", scratch_bytes, fmt::format("{} rows a step", options.step_rows));
  if (working_bytes > 0) line("working memory of operations", working_bytes, "");
  if (engram_fetch_bytes > 0)
    line("Engram rows on their way", engram_fetch_bytes, "this step's and the next one's");
  line("tokenizer, logits, tokens", host_bytes, "");
  line("total", total_bytes(), "");
  line("budget", budget_bytes, fits() ? "fits" : "does not fit");
  if (weights.draft_bytes > 0) line("not loaded: draft", weights.draft_bytes, "");
  if (weights.vision_bytes > 0) line("not loaded: vision", weights.vision_bytes, "");

  if (fits()) {
    text += fmt::format("The largest context that fits is {} tokens.\n", largest_context_tokens);
    if (largest_context_tokens == model_context_tokens)
      text.insert(text.size() - 2, ", all the model was made for");
  } else if (largest_context_tokens > 0) {
    text += fmt::format("Too much by {}. A context of at most {} tokens would fit.\n",
                        format_bytes(total_bytes() - budget_bytes), largest_context_tokens);
  } else if (fixed_bytes() + session_bytes() / options.sessions <= budget_bytes) {
    text += fmt::format("Too much by {}. Fewer sessions would fit.\n",
                        format_bytes(total_bytes() - budget_bytes));
  } else {
    const int64_t rest = budget_bytes - (total_bytes() - weights.resident_bytes());
    text += fmt::format(
        "Too much by {}. No context fits: {} a pack whose weights take at most {}{}.\n",
        format_bytes(total_bytes() - budget_bytes), options.sessions > 1 ? "use fewer sessions and" : "use",
        format_bytes(std::max<int64_t>(0, rest)), options.step_rows > 64 ? ", or fewer rows a step" : "");
  }
  return text;
}

int64_t resident_bytes() {
  return 1024 * number_after(read_system_file("/proc/self/status").value_or(""), "VmRSS:").value_or(0);
}

int64_t available_memory_bytes(const std::string& root) {
  const std::string meminfo = read_system_file(root + "/proc/meminfo").value_or("");
  const int64_t available_kib = number_after(meminfo, "MemAvailable:").value_or(0);
  return std::min(available_kib * 1024, control_groups_leave(root));
}

int64_t available_memory_bytes() { return available_memory_bytes(""); }

std::string format_bytes(int64_t bytes) {
  const auto amount = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.1f} GiB", amount / 0x1p30);
  if (bytes >= int64_t{1} << 20) return fmt::format("{:.1f} MiB", amount / 0x1p20);
  if (bytes >= int64_t{1} << 10) return fmt::format("{:.1f} KiB", amount / 0x1p10);
  return fmt::format("{} B", bytes);
}

}  // namespace fathom
