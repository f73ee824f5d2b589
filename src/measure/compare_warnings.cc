#include <algorithm>
#include <functional>

#include "measure/compare.h"

namespace fathom::measure {
namespace {

/// Results that share a value, in the order of first appearance.
struct Group {
  std::string value;
  std::vector<size_t> results;
};

using ValueOf = std::function<std::string(const BenchResult&)>;

/// Without results whose value is unknown ("").
std::vector<Group> groups_by(std::span<const BenchResult> results, const ValueOf& value_of) {
  std::vector<Group> groups;
  for (size_t result = 0; result < results.size(); ++result) {
    const std::string value = value_of(results[result]);
    if (value.empty()) continue;
    const auto same = [&](const Group& group) { return group.value == value; };
    auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end()) found = groups.insert(groups.end(), {.value = value});
    found->results.push_back(result);
  }
  return groups;
}

std::string letters(const std::vector<size_t>& results) {
  std::string text;
  for (const size_t result : results) text += (text.empty() ? "" : ", ") + result_letter(result);
  return text;
}

std::vector<size_t> results_of(const std::vector<Group>& groups) {
  std::vector<size_t> results;
  for (const Group& group : groups) results.insert(results.end(), group.results.begin(), group.results.end());
  std::sort(results.begin(), results.end());
  return results;
}

class Warnings {
 public:
  explicit Warnings(std::span<const BenchResult> results) : results_(results) {}

  /// "WHAT: A, C: one; B: other. MEANING"
  void differences(const std::string& what, const std::string& meaning, const ValueOf& value_of) {
    const std::vector<Group> groups = groups_by(results_, value_of);
    if (groups.size() < 2) return;
    std::string text = what + ":";
    for (const Group& group : groups)
      text += fmt::format("{} {}: {}", &group == &groups.front() ? "" : ";", letters(group.results), group.value);
    add(fmt::format("{}.{}{}", text, meaning.empty() ? "" : " ", meaning), results_of(groups));
  }

  /// Where some results do not say what others do, or none does, it cannot be checked.
  void unknown(const std::string& what, const ValueOf& value_of) {
    Group silent{.value = what};
    for (size_t result = 0; result < results_.size(); ++result)
      if (value_of(results_[result]).empty()) silent.results.push_back(result);
    if (!silent.results.empty() && results_.size() > 1) silent_.push_back(std::move(silent));
  }

  void add(std::string text, std::vector<size_t> results) {
    warnings_.push_back({.text = std::move(text), .results = std::move(results)});
  }

  std::vector<Warning> take() {
    if (!silent_.empty()) {
      std::string text;
      for (const Group& group : silent_)
        text += fmt::format("{}{} of {}", text.empty() ? "" : "; ", group.value, letters(group.results));
      std::vector<size_t> results = results_of(silent_);
      results.erase(std::unique(results.begin(), results.end()), results.end());
      add(fmt::format("Not known, so whether it is the same cannot be told: {}.", text), std::move(results));
    }
    return std::move(warnings_);
  }

 private:
  std::span<const BenchResult> results_;
  std::vector<Group> silent_;
  std::vector<Warning> warnings_;
};

std::string variant_text(const BenchResult& result) {
  if (!result.variant) return "";
  switch (*result.variant) {
    case Variant::kSession: return "inside of the engine's process, only what is new is evaluated";
    case Variant::kHttpIdsExact: return "HTTP with ids, only what is new is evaluated";
    case Variant::kHttpIdsReprocessed:
      return fmt::format(
          "HTTP with ids, the generated part is evaluated again ({} tokens more in each step after the "
          "first)",
          result.plan.generated_tokens);
    case Variant::kHttpIdsCold: return "HTTP with ids, the whole prompt is evaluated again in each step";
    case Variant::kHttpText: return "HTTP with text, tokens are counted by the server";
    case Variant::kMixed: return "stages differ";
  }
  return "";
}

std::string formula_text(const BenchResult& result) {
  if (result.formula == "f1") return "F1 only (n / from the end of prefill to the last token)";
  if (result.formula == "f2") return "F2 only (n - 1 / from the first token to the last)";
  return "";
}

std::string machine_text(const BenchResult& result) {
  const Environment& environment = result.environment;
  std::string text;
  for (const std::string* part : {&environment.machine, &environment.cpu, &environment.gpu})
    if (!part->empty()) text += (text.empty() ? "" : ", ") + *part;
  return text;
}

std::string pack_text(const BenchResult& result) {
  if (result.pack_sha256.empty()) return result.pack_name;
  const std::string hash = "SHA-256 " + result.pack_sha256.substr(0, 12);
  return result.pack_name.empty() ? hash : fmt::format("{} ({})", result.pack_name, hash);
}

const Source* source_named(const BenchResult& result, const std::string& name) {
  for (const Source& source : result.plan.sources)
    if (source.name == name) return &source;
  return nullptr;
}

std::string lengths_text(const std::vector<int64_t>& tokens) { return fmt::format("{}", fmt::join(tokens, ", ")); }

std::string runs_text(const BenchResult& result, std::span<const RunCount> counts) {
  std::vector<std::pair<std::string, int64_t>> runs;
  for (const RunCount& count : counts)
    runs.emplace_back(count.source, result.runs.empty() ? count.planned : count.measured - count.excluded);
  if (runs.empty()) return "";
  const bool is_even = std::all_of(runs.begin(), runs.end(), [&](const auto& one) {
    return one.second == runs.front().second;
  });
  if (is_even) return fmt::format("{}", runs.front().second);
  std::string text;
  for (const auto& [source, count] : runs) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", source, count);
  return text;
}

void warn_of_packs(std::span<const BenchResult> results, Warnings& warnings) {
  const auto name_of = [](const BenchResult& result) { return result.pack_name; };
  const auto hash_of = [](const BenchResult& result) { return result.pack_sha256; };
  const std::vector<Group> hashes = groups_by(results, hash_of);
  const bool all_have_one = hashes.size() == 1 && hashes.front().results.size() == results.size();
  // Equal bytes are equal, whatever the file is called.
  if (!all_have_one && (hashes.size() > 1 || groups_by(results, name_of).size() > 1))
    warnings.differences("The packs differ", "Other weights are other work and other answers.", pack_text);
  warnings.unknown("the pack's checksum", hash_of);
}

void warn_of_sources(std::span<const BenchResult> results, Warnings& warnings) {
  warnings.differences("The sources differ", "Only those that both have are compared.",
                       [](const BenchResult& result) {
                         std::vector<std::string> names;
                         for (const Source& source : result.plan.sources) names.push_back(source.name);
                         std::sort(names.begin(), names.end());
                         return fmt::format("{}", fmt::join(names, ", "));
                       });
  std::vector<std::string> names;
  for (const BenchResult& result : results)
    for (const Source& source : result.plan.sources)
      if (std::find(names.begin(), names.end(), source.name) == names.end()) names.push_back(source.name);
  bool is_unknown = false;
  for (const std::string& name : names) {
    const auto hash_of = [&](const BenchResult& result) {
      const Source* source = source_named(result, name);
      return source == nullptr ? std::string() : source->sha256.substr(0, 12);
    };
    warnings.differences(fmt::format("The texts called \"{}\" differ", name),
                         "Other texts choose other experts, and speculation succeeds more or less often.",
                         hash_of);
    int64_t holders = 0;
    for (const BenchResult& result : results)
      if (source_named(result, name) != nullptr) ++holders;
    is_unknown =
        is_unknown || (holders > 1 && std::any_of(results.begin(), results.end(), [&](const auto& result) {
                         return source_named(result, name) != nullptr && hash_of(result).empty();
                       }));
  }
  if (is_unknown)
    warnings.unknown("the source texts", [](const BenchResult& result) {
      const bool is_known = std::all_of(result.plan.sources.begin(), result.plan.sources.end(),
                                        [](const Source& source) { return !source.sha256.empty(); });
      return std::string(is_known ? "known" : "");
    });
}

void warn_of_plans(Warnings& warnings) {
  warnings.differences("The steps differ", "A step's figures depend on what came before it.",
                       [](const BenchResult& result) { return lengths_text(result.plan.step_tokens); });
  warnings.differences("The prompts by themselves differ", "",
                       [](const BenchResult& result) { return lengths_text(result.plan.alone_tokens); });
  warnings.differences("The lengths are scaled", "A short run says nothing of a long one.",
                       [](const BenchResult& result) { return result.plan.scale; });
  warnings.differences("The generated tokens of a stage differ", "",
                       [](const BenchResult& result) { return fmt::format("{}", result.plan.generated_tokens); });
}

std::string plural(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

void warn_of_runs(std::span<const BenchResult> results, Warnings& warnings) {
  const std::vector<RunCount> counts = run_counts(results);
  const auto counts_of = [&](size_t result) {
    std::vector<RunCount> own;
    for (const RunCount& count : counts)
      if (count.result == result) own.push_back(count);
    return own;
  };
  warnings.differences("The number of runs a source differs", "", [&](const BenchResult& result) {
    return runs_text(result, counts_of(static_cast<size_t>(&result - results.data())));
  });
  for (size_t result = 0; result < results.size(); ++result) {
    RunCount sum;
    for (const RunCount& count : counts_of(result)) {
      sum.measured += count.measured;
      sum.excluded += count.excluded;
      sum.excluded_failed += count.excluded_failed;
      sum.disturbed += count.disturbed;
      sum.failed += count.failed;
    }
    const std::string letter = result_letter(result);
    if (sum.excluded > 0)
      warnings.add(
          fmt::format("{}: {} of {} excluded, {} as disturbed and {} as not whole; they are in no mean.",
                      letter, sum.excluded, plural(sum.measured, "run"), sum.excluded - sum.excluded_failed,
                      sum.excluded_failed),
          {result});
    if (sum.disturbed > 0)
      warnings.add(fmt::format("{}: {} disturbed and nevertheless kept.", letter, plural(sum.disturbed, "run")),
                   {result});
    if (sum.failed > 0)
      warnings.add(fmt::format("{}: {} not whole: a stage failed or was not run.", letter,
                               plural(sum.failed, "run")), {result});
  }
}

}  // namespace

std::vector<Warning> comparison_warnings(std::span<const BenchResult> results) {
  Warnings warnings(results);
  warnings.differences("Generation speed is computed by different formulas",
                       "With 256 tokens F1 reads about 0.4 % higher than F2; they have rows of their own.",
                       formula_text);
  warnings.differences("Prompts reach the engines in different ways",
                       "First-token times and prefill speeds of different ways are not comparable.", variant_text);
  warnings.unknown("the way of the prompts", variant_text);
  warn_of_packs(results, warnings);
  warn_of_sources(results, warnings);
  warn_of_plans(warnings);
  warnings.differences("The machines differ", "Ratios are of machine and engine together.", machine_text);
  warn_of_runs(results, warnings);
  std::vector<size_t> published;
  for (size_t result = 0; result < results.size(); ++result)
    if (results[result].kind == "published") published.push_back(result);
  if (!published.empty())
    warnings.add(fmt::format("{}: figures of a publication, not measured with this program; they come without the "
                             "runs behind them, so their ratios have no interval.", letters(published)),
                 published);
  return warnings.take();
}

std::vector<EnvironmentRow> environment_rows(std::span<const BenchResult> results) {
  std::vector<EnvironmentRow> rows;
  const auto add = [&](const std::string& name, const ValueOf& value_of) {
    EnvironmentRow row{.name = name};
    for (const BenchResult& result : results) row.values.push_back(value_of(result));
    row.differs = groups_by(results, value_of).size() > 1;
    const auto is_empty = [](const std::string& value) { return value.empty(); };
    if (!std::all_of(row.values.begin(), row.values.end(), is_empty)) rows.push_back(std::move(row));
  };
  const auto number = [](const std::optional<int64_t>& value) {
    return value ? fmt::format("{}", *value) : std::string();
  };
  const auto gibibytes = [](const std::optional<int64_t>& value) {
    return value ? fmt::format("{:.1f} GiB", static_cast<double>(*value) / (1 << 30)) : std::string();
  };
  add("machine", [](const BenchResult& result) { return result.environment.machine; });
  add("CPU", [](const BenchResult& result) { return result.environment.cpu; });
  add("cores", [&](const BenchResult& result) { return number(result.environment.cores); });
  add("memory", [&](const BenchResult& result) { return gibibytes(result.environment.memory_bytes); });
  add("GPU", [](const BenchResult& result) { return result.environment.gpu; });
  add("system", [](const BenchResult& result) { return result.environment.os; });
  add("kernel", [](const BenchResult& result) { return result.environment.kernel; });
  add("power", [](const BenchResult& result) { return result.environment.power; });
  add("engine", [](const BenchResult& result) { return result.target.engine; });
  add("engine's settings", [](const BenchResult& result) { return result.target.details; });
  add("command", [](const BenchResult& result) { return result.target.command; });
  add("driver", [](const BenchResult& result) { return result.target.driver; });
  add("model", [](const BenchResult& result) { return result.target.model; });
  add("pack", [](const BenchResult& result) { return result.pack_name; });
  add("pack's SHA-256", [](const BenchResult& result) { return result.pack_sha256; });
  add("pack's path", [](const BenchResult& result) { return result.target.pack_path; });
  add("measured by", [](const BenchResult& result) { return result.program; });
  std::vector<std::string> names;
  for (const BenchResult& result : results)
    for (const auto& [name, value] : result.environment.more)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  for (const std::string& name : names)
    add(name, [&](const BenchResult& result) {
      for (const auto& [known, value] : result.environment.more)
        if (known == name) return value;
      return std::string();
    });
  return rows;
}

}  // namespace fathom::measure
