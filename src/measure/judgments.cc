#include "measure/judgments.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "measure/json_members.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr size_t kItems = kJudgingItems.size();
constexpr const char* kProofMember = "last_20_characters";
static_assert(kLastCharacters == 20);

/// What a copy may differ in: white space is left out, curved quotation marks are straight.
std::u32string comparable(std::string_view text) {
  std::u32string result;
  for (const char32_t c : characters_of(text)) {
    if (is_white_space(c)) continue;
    const bool is_single = c == 0x2018 || c == 0x2019;
    const bool is_double = c == 0x201C || c == 0x201D;
    result += is_single ? U'\'' : is_double ? U'"' : c;
  }
  return result;
}

/// Takes sheets one by one and keeps what counts.
class Merger {
 public:
  explicit Merger(const JudgingKey& key, JudgingOutcome& outcome) : key_(key), outcome_(outcome) {
    for (const KeyText& text : key.texts) texts_[text.name] = &text;
  }

  void take(const std::string& path) {
    const Result<Json> json = read_json_object(path);
    if (!json.ok()) return reject(json.error());
    JsonMembers members(*json, path);
    const std::string kind = members.text("kind");
    if (kind != "writing judgement") members.refuse("kind", "\"writing judgement\"", kind);
    members.whole("version", 1, 1);
    const std::string package = members.text("package");
    if (package != key_.id) members.refuse("package", "that of the key, " + key_.id, package);
    const std::string judge = members.text("judge");
    if (folded(judge).find_first_not_of(' ') == std::string::npos) members.refuse("judge", "a name", judge);
    const Json& texts = members.array("texts");
    if (const auto result = members.result(); !result.ok()) return reject(result.error());
    for (size_t number = 0; number < texts.size(); ++number)
      take_entry(texts[number], members.place("texts", number), judge);
  }

 private:
  void reject(const Error& error) { outcome_.rejected.push_back(error.message); }

  static bool is_empty(const Json& entry) {
    if (!entry.is_object()) return false;
    const bool has_score = std::any_of(kJudgingItems.begin(), kJudgingItems.end(), [&](const char* item) {
      return entry.contains(item) && !entry[item].is_null();
    });
    return !has_score && (!entry.contains(kProofMember) || entry[kProofMember] == "");
  }

  void take_entry(const Json& entry, const std::string& where, const std::string& judge) {
    if (is_empty(entry)) return;
    JsonMembers members(entry, where);
    Judgment judgment{.judge = judge, .text = members.text("text")};
    const auto known = texts_.find(judgment.text);
    if (known == texts_.end()) members.refuse("text", "a text of the package", judgment.text);
    for (size_t item = 0; item < kItems; ++item)
      judgment.scores[item] = static_cast<int32_t>(members.whole(kJudgingItems[item], 0, kScoreMax));
    const std::string proof = members.text(kProofMember);
    if (known != texts_.end() && !proves_reading(proof, known->second->end))
      members.refuse(kProofMember, fmt::format("the end of {}", judgment.text), proof);
    if (const auto result = members.result(); !result.ok())
      return outcome_.rejected.push_back(
          fmt::format("{} (judge {}, {})", result.error().message, judge, judgment.text));
    if (!taken_.emplace(judge, judgment.text).second) {
      return outcome_.rejected.push_back(
          fmt::format("{}: {} has judged {} already: the first judgement counts", where, judge, judgment.text));
    }
    outcome_.judgments.push_back(std::move(judgment));
  }

  const JudgingKey& key_;
  JudgingOutcome& outcome_;
  std::map<std::string, const KeyText*> texts_;
  std::set<std::pair<std::string, std::string>> taken_;  // judge, text
};

std::vector<const Judgment*> judgments_of(const JudgingOutcome& outcome, const std::string& text) {
  std::vector<const Judgment*> found;
  for (const Judgment& judgment : outcome.judgments)
    if (judgment.text == text) found.push_back(&judgment);
  return found;
}

template <class Score>
double mean_of(const std::vector<const Judgment*>& judgments, const Score& score) {
  double sum = 0;
  for (const Judgment* judgment : judgments) sum += score(*judgment);
  return sum / static_cast<double>(judgments.size());
}

EngineScore score_engine(const JudgingKey& key, const std::string& engine, const JudgingOutcome& outcome) {
  EngineScore score{.engine = engine};
  std::array<std::vector<double>, kItems> items;  // [texts] each
  std::vector<double> totals;
  for (const KeyText& text : key.texts) {
    if (text.engine != engine) continue;
    ++score.texts;
    score.within_goal += text.is_within_goal ? 1 : 0;
    score.loops += text.has_loop ? 1 : 0;
    score.within_goal_without_loop += text.is_within_goal && !text.has_loop ? 1 : 0;
    score.all_facts_kept += text.facts_kept == text.facts ? 1 : 0;
    const std::vector<const Judgment*> judgments = judgments_of(outcome, text.name);
    if (judgments.empty()) continue;
    ++score.texts_judged;
    score.judgments += static_cast<int64_t>(judgments.size());
    for (size_t item = 0; item < kItems; ++item)
      items[item].push_back(
          mean_of(judgments, [item](const Judgment& judgment) { return judgment.scores[item]; }));
    totals.push_back(mean_of(judgments, [](const Judgment& judgment) { return judgment.total(); }));
  }
  for (size_t item = 0; item < kItems; ++item) score.items[item] = sample_of(items[item]);
  score.total = sample_of(totals);
  return score;
}

void measure_agreement(const JudgingKey& key, JudgingOutcome& outcome) {
  std::array<std::vector<std::vector<int32_t>>, kItems> items;
  std::vector<std::vector<int32_t>> totals;
  for (const KeyText& text : key.texts) {
    const std::vector<const Judgment*> judgments = judgments_of(outcome, text.name);
    totals.emplace_back();
    for (const Judgment* judgment : judgments) totals.back().push_back(judgment->total());
    for (size_t item = 0; item < kItems; ++item) {
      items[item].emplace_back();
      for (const Judgment* judgment : judgments) items[item].back().push_back(judgment->scores[item]);
    }
  }
  for (size_t item = 0; item < kItems; ++item) outcome.items[item] = ordinal_agreement(items[item]);
  outcome.total = ordinal_agreement(totals);
}

void state_limits(const JudgingKey& key, JudgingOutcome& outcome) {
  auto& statements = outcome.statements;
  if (outcome.judgments.empty()) {
    statements.push_back("No judgement counts: there are no scores.");
  } else if (outcome.total.texts == 0) {
    statements.push_back(
        "Each text was read by one judge: nothing is known of how far judges agree, and what looks like a "
        "difference between engines may be one between judges.");
  } else if (outcome.total.texts < static_cast<int64_t>(key.texts.size())) {
    statements.push_back(fmt::format("Agreement is that of the {} of {} texts that two judges or more have read.",
                                     outcome.total.texts, key.texts.size()));
  }
  if (outcome.total.texts > 0 && std::isnan(outcome.total.alpha))
    statements.push_back("All totals are the same: agreement is not defined.");
  statements.push_back(
      "Means and standard deviations are over texts, each text the mean of its judges; the texts of an engine are "
      "few, and differences between engines were not tested for significance.");
  for (const std::string& left_out : key.left_out) statements.push_back("Not judged: " + left_out + ".");
}

OrderedJson number(double value) { return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr); }

OrderedJson to_json(const Sample& sample) {
  const bool is_empty = sample.count == 0;
  return {{"n", sample.count},
          {"mean", is_empty ? OrderedJson(nullptr) : number(sample.mean)},
          {"sd", is_empty ? OrderedJson(nullptr) : number(sample.deviation)}};
}

OrderedJson to_json(const JudgeAgreement& agreement) {
  return {{"alpha", number(agreement.alpha)}, {"texts", agreement.texts}, {"values", agreement.values}};
}

std::string cell(const Sample& sample) {
  if (sample.count == 0 || !std::isfinite(sample.mean)) return "-";
  if (!std::isfinite(sample.deviation)) return fmt::format("{:.2f}", sample.mean);
  return fmt::format("{:.2f} ± {:.2f}", sample.mean, sample.deviation);
}

std::string cell(const JudgeAgreement& agreement) {
  return std::isfinite(agreement.alpha) ? fmt::format("{:.3f}", agreement.alpha) : std::string("-");
}

/// A name from a file, in a table.
std::string escaped(std::string name) {
  for (char& c : name)
    if (c == '|' || c == '\n' || c == '\r') c = '/';
  return name;
}

}  // namespace

int32_t Judgment::total() const { return std::accumulate(scores.begin(), scores.end(), 0); }

bool proves_reading(std::string_view copied, std::string_view end) {
  const std::u32string proof = comparable(copied), wanted = comparable(end);
  if (proof.size() < std::min(kProofCharactersMin, wanted.size()) || proof.size() > wanted.size()) return false;
  return std::u32string_view(wanted).substr(wanted.size() - proof.size()) == proof;
}

Result<JudgingOutcome> merge_judgments(const std::string& key_path, const std::vector<std::string>& sheet_paths) {
  FATHOM_ASSIGN(const JudgingKey key, read_judging_key(key_path));
  JudgingOutcome outcome{.id = key.id};
  Merger merger(key, outcome);
  for (const std::string& path : sheet_paths) merger.take(path);
  std::set<std::string> judges;
  for (const Judgment& judgment : outcome.judgments) judges.insert(judgment.judge);
  outcome.judges.assign(judges.begin(), judges.end());
  for (const std::string& engine : key.engines) outcome.engines.push_back(score_engine(key, engine, outcome));
  measure_agreement(key, outcome);
  state_limits(key, outcome);
  return outcome;
}

OrderedJson to_json(const JudgingOutcome& outcome) {
  OrderedJson engines = OrderedJson::array(), agreement = OrderedJson::object(), judgments = OrderedJson::array();
  for (const EngineScore& engine : outcome.engines) {
    OrderedJson items = OrderedJson::object();
    for (size_t item = 0; item < kItems; ++item) items[kJudgingItems[item]] = to_json(engine.items[item]);
    engines.push_back({{"engine", engine.engine},
                       {"texts", engine.texts},
                       {"texts_judged", engine.texts_judged},
                       {"judgments", engine.judgments},
                       {"within_goal", engine.within_goal},
                       {"loops", engine.loops},
                       {"within_goal_without_loop", engine.within_goal_without_loop},
                       {"all_facts_kept", engine.all_facts_kept},
                       {"total", to_json(engine.total)},
                       {"items", items}});
  }
  for (size_t item = 0; item < kItems; ++item) agreement[kJudgingItems[item]] = to_json(outcome.items[item]);
  for (const Judgment& judgment : outcome.judgments)
    judgments.push_back({{"judge", judgment.judge}, {"text", judgment.text}, {"scores", judgment.scores}});
  return {
      {"kind", "writing scores"},
      {"version", 1},
      {"package", outcome.id},
      {"judges", outcome.judges},
      {"engines", engines},
      {"agreement",
       {{"measure", "Krippendorff's alpha, ordinal"}, {"total", to_json(outcome.total)}, {"items", agreement}}},
      {"statements", outcome.statements},
      {"rejected", outcome.rejected},
      {"judgments", judgments}};
}

std::string to_markdown(const JudgingOutcome& outcome) {
  std::string text = "| engine | texts | judged | total of 24 |";
  for (const char* item : kJudgingItems) {
    std::string name = item;
    std::replace(name.begin(), name.end(), '_', ' ');
    text += fmt::format(" {} |", name);
  }
  text += " in goal | loops | in goal, no loop | all facts |\n|---|";
  for (size_t column = 0; column < 3 + kItems + 4; ++column) text += "---:|";
  text += "\n";
  for (const EngineScore& engine : outcome.engines) {
    text += fmt::format("| {} | {} | {} | {} |", escaped(engine.engine), engine.texts, engine.texts_judged,
                        cell(engine.total));
    for (const Sample& item : engine.items) text += fmt::format(" {} |", cell(item));
    text += fmt::format(" {} | {} | {} | {} |\n", engine.within_goal, engine.loops,
                        engine.within_goal_without_loop, engine.all_facts_kept);
  }
  text += fmt::format("| agreement (alpha) | {} | | {} |", outcome.total.texts, cell(outcome.total));
  for (const JudgeAgreement& item : outcome.items) text += fmt::format(" {} |", cell(item));
  text += " | | | |\n\n";
  text += fmt::format(
      "Mean ± standard deviation. {} judgements by {} judge{}. Agreement is Krippendorff's alpha for "
      "ordinal values.\n\n",
      outcome.judgments.size(), outcome.judges.size(), outcome.judges.size() == 1 ? "" : "s");
  for (const std::string& statement : outcome.statements) text += "- " + escaped(statement) + "\n";
  for (const std::string& rejected : outcome.rejected) text += "- Not counted: " + escaped(rejected) + "\n";
  return text;
}

}  // namespace fathom::measure
