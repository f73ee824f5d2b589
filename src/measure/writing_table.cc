// The Markdown of writing_record.h.
#include <algorithm>
#include <cmath>

#include "measure/statistics.h"
#include "measure/writing_record.h"

namespace fathom::measure {
namespace {

std::string cell(const std::optional<double>& value, int decimals) {
  return value ? fmt::format("{:.{}f}", *value, decimals) : std::string("-");
}

/// Distinct words of 100, over the first and the last whole window: where a text runs dry the second is lower.
std::string words_cell(const std::vector<int64_t>& curve) {
  return curve.empty() ? std::string("-") : fmt::format("{} .. {}", curve.front(), curve.back());
}

std::string text_row(const WrittenText& text) {
  if (text.status != TextStatus::kDone) {
    std::string error = text.status == TextStatus::kFailed ? "failed: " + text.error : std::string("not run");
    for (char& c : error)
      if (c == '|' || c == '\n' || c == '\r') c = '/';
    return fmt::format("| {} | {} | {} | | | | | | | | | | |\n", text.brief, text.seed, error);
  }
  const TextExamination& seen = text.examination;
  const std::string loop =
      !text.loop.report.found ? std::string("no")
                              : fmt::format("{} x {} {}", text.loop.report.repeats, text.loop.report.period_tokens,
                                            text.loop.basis == LoopBasis::kIds ? "tokens" : "characters");
  return fmt::format("| {} | {} | {} | {} | {} | {} | {}/{} | {:.1f} % | {:.1f} % | {} | {} | {} | {} |\n",
                     text.brief, text.seed, text.finish_reason.empty() ? "unknown" : text.finish_reason,
                     seen.length, seen.is_within_goal ? "yes" : "no", loop, seen.facts_kept(), seen.facts.size(),
                     100 * seen.figures.character_grams.share(), 100 * seen.figures.word_grams.share(),
                     words_cell(seen.figures.distinct_word_curve), cell(text.first_token_s, 2),
                     cell(text.generation_f2_tokens_per_s, 2), fmt::format("{:.0f}", text.total_s));
}

std::string cell(const std::vector<double>& values, int decimals) {
  if (values.empty()) return "-";
  const Sample sample = sample_of(values);
  if (!std::isfinite(sample.deviation)) return fmt::format("{:.{}f}", sample.mean, decimals);
  return fmt::format("{:.{}f} ± {:.{}f}", sample.mean, decimals, sample.deviation, decimals);
}

std::string brief_row(const WritingRecord& record, const WritingBrief& brief) {
  int64_t done = 0, failed = 0, within = 0, loops = 0, good = 0, all_facts = 0;
  std::vector<double> lengths, rates;
  for (const WrittenText& text : record.texts) {
    if (text.brief != brief.name) continue;
    failed += text.status == TextStatus::kFailed ? 1 : 0;
    if (text.status != TextStatus::kDone) continue;
    const bool has_loop = text.loop.report.found;
    ++done;
    within += text.examination.is_within_goal ? 1 : 0;
    loops += has_loop ? 1 : 0;
    good += text.examination.is_within_goal && !has_loop ? 1 : 0;
    all_facts += text.examination.facts_kept() == static_cast<int64_t>(brief.facts.size()) ? 1 : 0;
    lengths.push_back(static_cast<double>(text.examination.length));
    if (text.generation_f2_tokens_per_s) rates.push_back(*text.generation_f2_tokens_per_s);
  }
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", brief.name, done, failed, within, loops,
                     good, all_facts, cell(lengths, 0), cell(rates, 2));
}

}  // namespace

std::string writing_table(const WritingRecord& record) {
  std::string text =
      "| brief | seed | ended | length | in goal | loop | facts | 8 characters again | 4 words again | "
      "distinct of 100 words | first token s | tok/s | s |\n"
      "|---|---:|---|---:|---|---|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const WrittenText& written : record.texts) text += text_row(written);
  text +=
      "\n| brief | done | failed | in goal | loops | in goal, no loop | all facts | length | tok/s |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const WritingBrief& brief : record.settings.briefs) text += brief_row(record, brief);
  text += "\n";
  for (const WritingBrief& brief : record.settings.briefs) {
    text += fmt::format("{}: length in {}, goal {} to {}\n", brief.name, unit_words(brief.length.unit),
                        brief.length.low, brief.length.high);
  }
  return text;
}

}  // namespace fathom::measure
