// How much a step may hold so that it stays under a time, learnt from the steps before it.
#pragma once

#include <cstdint>

namespace fathom {

/// Units are rows of one layer: a row that passes all layers of a model of 40 takes 40.
class StepBudget {
 public:
  /// Never gives fewer than `units_min`, however slow the steps are: a prompt must not starve.
  StepBudget(int64_t target_us, int64_t units_min, int64_t units_max, int64_t units_start);

  int64_t units() const { return units_; }
  /// A step took `step_us`, with `units` of prompts in it, and `masks_us` beside that its prompts are not to blame
  /// for: those take from the target, at most half of it.
  void note(int64_t units, int64_t step_us, int64_t masks_us = 0);

 private:
  int64_t target_us_;
  int64_t units_min_;
  int64_t units_max_;
  int64_t units_;
};

}  // namespace fathom
