// All runs of the protocol against one target, in a folder, so that an interrupted campaign goes on where it was.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "measure/protocol.h"

namespace fathom::measure {

struct CampaignSettings {
  std::string name;    // of the result, for people
  std::string folder;  // campaign.json, runs/*.json, result.json, result.csv
  std::string target;  // what is measured, as the user named it: a resumed campaign must be of the same
  ProtocolSettings protocol;
  std::vector<SourceText> sources;
  bool repeats_disturbed = false;  // a disturbed run is excluded and made again
  int32_t attempts = 3;  // that one call makes of a run that failed, or was disturbed and is to be repeated
  std::string pack_name, pack_sha256;
};

struct CampaignTools : RunTools {
  std::function<std::unique_ptr<Target>()> make_target;
  std::function<Environment()> environment;
};

/// Runs what the folder does not hold yet, in the order run 1 of every source, run 2, ..., so that slow drifts
/// of the machine fall on all sources alike. Every run is written as soon as it ends. Failed attempts stay in
/// the result, excluded. Fails when the folder belongs to another campaign (says what differs) or cannot be
/// written; kCancelled when interrupted. When outputs of runs differ, the margin at the first divergence is
/// asked from a fresh target.
Result<BenchResult> run_campaign(const CampaignSettings& settings, const CampaignTools& tools);

}  // namespace fathom::measure
