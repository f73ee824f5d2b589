// Where the stages of several results meet: the rows of a comparison.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "measure/result.h"

namespace fathom::measure {

struct Place {
  std::string source, stage;
  auto operator<=>(const Place&) const = default;
};

/// Sources in the order of their first appearance, those that a publication does not name last; stages by context.
class Places {
 public:
  explicit Places(std::span<const BenchResult> results);
  const std::vector<Place>& all() const { return places_; }
  int64_t context_tokens(const Place& place) const { return contexts_.at(place); }  // 0: unknown

 private:
  void add(const Place& place, int64_t context_tokens);
  size_t source_order(const std::string& source) const;
  int64_t stage_order(const Place& place) const;

  std::vector<Place> places_;
  std::vector<std::string> sources_;
  std::map<Place, int64_t> contexts_;
};

/// The stage's name; "64K alone" for a prompt by itself where the plan also has a step of that length.
std::string place_name(const Plan& plan, const Stage& stage);

struct RunStage {
  const Run* run;
  const Stage* stage;
};
/// The stage of each run that is not excluded and has it whole.
std::vector<RunStage> whole_stages(const BenchResult& result, const Place& place);

}  // namespace fathom::measure
