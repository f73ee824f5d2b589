#include "engine/step_budget.h"

#include <algorithm>

namespace fathom {

StepBudget::StepBudget(int64_t target_us, int64_t units_min, int64_t units_max, int64_t units_start)
    : target_us_(std::max<int64_t>(1, target_us)),
      units_min_(units_min),
      units_max_(std::max(units_min, units_max)),
      units_(std::clamp(units_start, units_min, units_max_)) {}

// Falls fast, at most to a quarter, and grows slowly near the target: what other rows of the step cost is not
// known apart, so the last stretch is felt out.
void StepBudget::note(int64_t units, int64_t step_us, int64_t masks_us) {
  if (units <= 0) return;
  const int64_t target_us = std::max(target_us_ - masks_us, (target_us_ + 1) / 2);
  const double ratio = static_cast<double>(target_us) / static_cast<double>(std::max<int64_t>(1, step_us));
  if (ratio < 1) {
    const double less = static_cast<double>(std::min(units, units_)) * std::max(0.25, ratio);
    units_ = std::max(units_min_, static_cast<int64_t>(less));
  } else if (units * 10 >= units_ * 8) {
    const double more = static_cast<double>(units_) * std::clamp(0.8 * ratio, 1.0, 2.0);
    units_ = std::min(units_max_, static_cast<int64_t>(more));
  }
}

}  // namespace fathom
