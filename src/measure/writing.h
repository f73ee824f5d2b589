// The writing test: each brief with each seed, each text by a fresh process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "measure/target.h"
#include "measure/writing_record.h"

namespace fathom::measure {

using TargetFactory = std::function<std::unique_ptr<Target>()>;

struct WritingCampaign {
  WritingSettings settings;
  std::string folder;
  std::chrono::seconds time_limit{6 * 3600};  // of a text
  std::chrono::seconds silence_limit{1800};
  std::function<bool()> is_stopped;             // asked between texts; may be empty
  std::function<void(const std::string&)> say;  // a line for people; may be empty
};

/// Writes the record and each text to the folder, after each text, whole or not at all, so that a campaign that
/// was stopped goes on where it was: finished texts are kept, failed ones are tried again. Refuses a folder of
/// other settings or of another target, and one that another campaign is using. A text that fails is marked and
/// the next one begins; when two targets in a row do not start, the campaign ends with their error.
Result<WritingRecord> run_writing(const TargetFactory& make_target, const WritingCampaign& campaign);

}  // namespace fathom::measure
