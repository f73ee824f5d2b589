#include "measure/writing.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "measure/figures.h"
#include "measure/folder_lock.h"
#include "measure/json_members.h"

namespace fathom::measure {
namespace {

constexpr int kFailedStartsMax = 2;

Result<void> check_settings(const WritingSettings& settings) {
  if (settings.briefs.empty() || settings.seeds.empty())
    return Error::invalid("the writing test: expected at least one brief and one seed, found {} and {}",
                          settings.briefs.size(), settings.seeds.size());
  std::set<std::string> briefs;
  for (const WritingBrief& brief : settings.briefs)
    if (!briefs.insert(brief.name).second)
      return Error::invalid("the writing test: expected each brief once, found \"{}\" again", brief.name);
  std::set<uint64_t> seeds;
  for (const uint64_t seed : settings.seeds)
    if (!seeds.insert(seed).second)
      return Error::invalid("the writing test: expected each seed once, found {} again", seed);
  return {};
}

bool has_texts(const WritingRecord& record) {
  return std::any_of(record.texts.begin(), record.texts.end(),
                     [](const WrittenText& text) { return text.status == TextStatus::kDone; });
}

/// Texts whose record is gone: writing there would take their names.
bool has_lost_texts(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error), end;
  return !error && std::any_of(entry, end, [](const auto& file) { return file.path().extension() == ".txt"; });
}

/// The folder's own record, or a new one. Where nothing was finished there is nothing to mix up.
Result<WritingRecord> begin_record(const WritingCampaign& campaign) {
  if (!file_exists(record_path(campaign.folder))) {
    if (!has_lost_texts(campaign.folder)) return new_record(campaign.settings);
    return Error::state("{}: holds texts, but no {} that says what they are; choose another folder", campaign.folder,
                        std::filesystem::path(record_path(campaign.folder)).filename().string());
  }
  FATHOM_ASSIGN(WritingRecord record, read_record(campaign.folder));
  const std::vector<std::string> differing = differences(record.settings, campaign.settings);
  if (!differing.empty() && !has_texts(record)) return new_record(campaign.settings);
  if (!differing.empty())
    return Error::state("{}: holds texts of other settings: {}", campaign.folder, fmt::join(differing, "; "));
  WritingRecord ordered = new_record(campaign.settings);
  ordered.program = record.program, ordered.created = record.created, ordered.target = record.target;
  for (WrittenText& wanted : ordered.texts)
    for (WrittenText& kept : record.texts)
      if (kept.brief == wanted.brief && kept.seed == wanted.seed) wanted = std::move(kept);
  return ordered;
}

double seconds(int64_t from_ns, int64_t to_ns) { return static_cast<double>(to_ns - from_ns) * 1e-9; }

void fill_times(const Generation& generation, WrittenText& text) {
  text.total_s = std::max(0.0, seconds(generation.sent_ns, generation.ended_ns));
  text.finish_reason = generation.finish_reason;
  const auto arrived = static_cast<int64_t>(generation.token_ns.size());
  text.tokens = arrived, text.tokens_from = "arrivals";
  if (generation.claimed_output_tokens && *generation.claimed_output_tokens >= 0)
    text.tokens = *generation.claimed_output_tokens, text.tokens_from = "claim";
  if (!generation.ids.empty()) text.tokens = static_cast<int64_t>(generation.ids.size()), text.tokens_from = "ids";
  if (arrived == 0) return;
  text.first_token_s = seconds(generation.sent_ns, generation.token_ns.front());
  const GenerationRates rates = generation_rates(generation, text.tokens);
  text.generation_f1_tokens_per_s = rates.f1_tokens_per_s;
  text.generation_f2_tokens_per_s = rates.f2_tokens_per_s;
}

/// Why what came is no finished text; empty: it is one.
std::string fault_of(const Generation& generation) {
  if (!generation.error.empty()) return generation.error;
  const std::string& reason = generation.finish_reason;
  for (const char* broken : {"error", "abort", "aborted", "cancelled", "canceled"})
    if (reason == broken) return "the target ended the text: " + reason;
  if (generation.text.empty() && !generation.ids.empty())
    return fmt::format("the target gave {} ids and no text", generation.ids.size());
  if (generation.text.empty() && reason.empty()) return "the target gave no text and no reason";
  return "";
}

/// One campaign at work.
class Writer {
 public:
  Writer(const TargetFactory& make_target, const WritingCampaign& campaign, WritingRecord& record)
      : make_target_(make_target), campaign_(campaign), record_(record) {}

  Result<void> write_all() {
    for (WrittenText& text : record_.texts) {
      if (text.status == TextStatus::kDone) continue;
      if (is_stopped()) return {};
      FATHOM_TRY(write_one(text));
      if (failed_starts_ >= kFailedStartsMax)
        return Error::state("the target did not start {} times in a row: {}", failed_starts_, text.error);
    }
    return {};
  }

 private:
  bool is_stopped() const { return campaign_.is_stopped && campaign_.is_stopped(); }
  void say(const std::string& line) const {
    if (campaign_.say) campaign_.say(line);
  }

  Result<void> write_one(WrittenText& text) {
    std::vector<std::string> errors = std::move(text.earlier_errors);
    if (text.status == TextStatus::kFailed) errors.push_back(text.error);
    text = {.brief = text.brief, .seed = text.seed, .earlier_errors = std::move(errors), .begun = utc_now()};
    say(fmt::format("{} {}: begun", text.brief, text.seed));
    const std::unique_ptr<Target> target = make_target_();
    const Result<std::string> bytes = write_with(*target, text);
    target->stop();
    FATHOM_TRY(bytes.ok() ? Result<void>() : Result<void>(bytes.error()));
    return keep(text, *bytes);
  }

  /// What came of the text. Fails only when nothing may be written in this folder.
  Result<std::string> write_with(Target& target, WrittenText& text) {
    text.status = TextStatus::kFailed;
    const auto started = target.start();
    if (!started.ok()) {
      ++failed_starts_;
      text.error = "the target did not start: " + started.error().message;
      return std::string();
    }
    failed_starts_ = 0;
    FATHOM_TRY(check_target(*started));
    text.is_fresh = started->address.empty() || !started->command.empty();
    if (!text.is_fresh) target.clear_state();
    // On the disk until the text is there: a campaign that is killed leaves a mark, too.
    text.error = "the campaign ended while it was written";
    FATHOM_TRY(write_record(campaign_.folder, record_));
    return generate(target, text);
  }

  Result<void> check_target(const TargetInfo& found) {
    if (!record_.target || !has_texts(record_)) record_.target = found;
    const std::vector<std::string> differing = differences(*record_.target, found);
    if (differing.empty()) return {};
    return Error::state("{}: holds texts of another target: {}", campaign_.folder, fmt::join(differing, "; "));
  }

  std::string generate(Target& target, WrittenText& text) {
    const GenerateRequest request{.prompt_text = record_.brief(text.brief)->text,
                                  .is_chat = true,
                                  .max_tokens = record_.settings.max_tokens,
                                  .temperature = record_.settings.temperature,
                                  .seed = text.seed,
                                  .ignore_eos = false,
                                  .time_limit = campaign_.time_limit,
                                  .silence_limit = campaign_.silence_limit};
    Generation generation = target.generate(request);
    fill_times(generation, text);
    text.loop = find_loop(generation.ids, generation.text);
    text.error = fault_of(generation);
    text.status = text.error.empty() ? TextStatus::kDone : TextStatus::kFailed;
    if (text.status == TextStatus::kFailed && is_stopped()) text.error = "stopped by the user: " + text.error;
    return std::move(generation.text);
  }

  /// The text before the record: a record never names a text that is not there.
  Result<void> keep(WrittenText& text, const std::string& bytes) {
    const bool is_done = text.status == TextStatus::kDone;
    if (is_done || !bytes.empty()) {
      text.file = fmt::format("{}_{}{}.txt", text.brief, text.seed, is_done ? "" : "_unfinished");
      text.sha256 = sha256_hex(bytes);
      FATHOM_TRY(write_text_file(campaign_.folder + "/" + text.file, bytes));
    }
    if (is_done) {
      text.examination = examine(*record_.brief(text.brief), bytes);
      std::error_code none;
      std::filesystem::remove(fmt::format("{}/{}_{}_unfinished.txt", campaign_.folder, text.brief, text.seed),
                              none);
    }
    FATHOM_TRY(write_record(campaign_.folder, record_));
    say(is_done ? fmt::format("{} {}: {} {} in {:.0f} s{}", text.brief, text.seed, text.examination.length,
                              unit_words(record_.brief(text.brief)->length.unit), text.total_s,
                              text.loop.report.found ? ", a loop" : "")
                : fmt::format("{} {}: failed: {}", text.brief, text.seed, text.error));
    return {};
  }

  const TargetFactory& make_target_;
  const WritingCampaign& campaign_;
  WritingRecord& record_;
  int failed_starts_ = 0;
};

}  // namespace

Result<WritingRecord> run_writing(const TargetFactory& make_target, const WritingCampaign& campaign) {
  FATHOM_TRY(check_settings(campaign.settings));
  std::error_code error;
  std::filesystem::create_directories(campaign.folder, error);
  if (error) return Error::io("{}: cannot be made: {}", campaign.folder, error.message());
  FATHOM_ASSIGN(const FolderLock lock, FolderLock::take(campaign.folder));
  FATHOM_ASSIGN(WritingRecord record, begin_record(campaign));
  // Before the first text, which takes long: a folder that cannot be written is found now.
  FATHOM_TRY(write_record(campaign.folder, record));
  FATHOM_TRY(Writer(make_target, campaign, record).write_all());
  return record;
}

}  // namespace fathom::measure
