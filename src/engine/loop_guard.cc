#include "engine/loop_guard.h"

#include <algorithm>
#include <limits>

namespace fathom {
namespace {

constexpr size_t kLanes = 16;  // periods compared at once: a fixed number, so that the loop becomes vectors
constexpr int32_t kNoToken = -1;
constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
constexpr int32_t kPeriodMax = 1 << 20;

}  // namespace

LoopGuard::LoopGuard(const LoopGuardOptions& options) {
  const int32_t periods = std::clamp(options.period_tokens_max, 0, kPeriodMax);
  if (options.mode == LoopGuardMode::kOff || periods == 0) return;
  periods_ = (static_cast<size_t>(periods) + kLanes - 1) / kLanes * kLanes;
  // Twice what is looked at: the newest token moves down, and only at the bottom is the rest moved up.
  history_.assign(2 * periods_ + 1, kNoToken);
  newest_ = periods_ + 1;
  agreeing_.assign(periods_, 0);
  wanted_.assign(periods_, kNever);
  const int64_t repeats = std::max<int64_t>(2, options.repeats_min);
  for (int64_t period = 1; period <= periods; ++period) {
    const int64_t tokens = std::max<int64_t>(repeats * period, options.repeated_tokens_min);
    wanted_[static_cast<size_t>(period) - 1] = static_cast<int32_t>(std::min<int64_t>(tokens - period, kNever));
  }
}

void LoopGuard::remember(int32_t id) {
  if (newest_ == 0) {
    std::copy_backward(history_.begin(), history_.begin() + static_cast<ptrdiff_t>(periods_), history_.end());
    newest_ = history_.size() - periods_;
  }
  history_[--newest_] = id;
}

// Brings `agreeing_` up to the newest token; whether any period has as many as it wants.
bool LoopGuard::compare() {
  const int32_t id = history_[newest_];
  const int32_t* before = history_.data() + newest_ + 1;
  int32_t reached[kLanes] = {};
  for (size_t first = 0; first < periods_; first += kLanes) {
    int32_t* agreeing = agreeing_.data() + first;
    const int32_t* wanted = wanted_.data() + first;
    // Into an array of its own, and without branches, or the compiler makes no vectors of it.
    int32_t now[kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane)
      now[lane] = (agreeing[lane] + 1) & -static_cast<int32_t>(before[first + lane] == id);
    for (size_t lane = 0; lane < kLanes; ++lane) reached[lane] |= static_cast<int32_t>(now[lane] >= wanted[lane]);
    std::copy_n(now, kLanes, agreeing);
  }
  return std::any_of(reached, reached + kLanes, [](int32_t lane) { return lane != 0; });
}

bool LoopGuard::take(int32_t id) {
  if (periods_ == 0) return false;
  remember(id);
  ++taken_;
  if (report_.found) {
    goes_on_ = goes_on_ && history_[newest_ + static_cast<size_t>(report_.period_tokens)] == id;
    if (goes_on_) report_.repeats = ++loop_tokens_ / report_.period_tokens;
    return true;
  }
  if (!compare()) return false;
  size_t period = 1;
  while (agreeing_[period - 1] < wanted_[period - 1]) ++period;
  loop_tokens_ = agreeing_[period - 1] + static_cast<int64_t>(period);
  report_ = {.found = true,
             .period_tokens = static_cast<int32_t>(period),
             .repeats = loop_tokens_ / static_cast<int64_t>(period),
             .first_token = taken_ - loop_tokens_};
  return true;
}

}  // namespace fathom
