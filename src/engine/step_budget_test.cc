#include "engine/step_budget.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

// Steps that take `base_us` and `unit_us` for each unit.
int64_t settle(StepBudget& budget, int64_t base_us, int64_t unit_us, int64_t masks_us = 0) {
  int64_t step_us = 0;
  for (int step = 0; step < 60; ++step) {
    step_us = base_us + budget.units() * unit_us;
    budget.note(budget.units(), step_us, masks_us);
  }
  return step_us;
}

TEST(StepBudget, SettlesBelowItsTarget) {
  StepBudget budget(50'000, 10, 100'000, 5000);
  EXPECT_LE(settle(budget, 10'000, 20), 50'000);
  EXPECT_GE(budget.units(), 1400);  // 2000 would fill it
  EXPECT_LE(settle(budget, 40'000, 20), 50'000);
  EXPECT_GE(budget.units(), 10);
}

TEST(StepBudget, LeavesMasksTheirTimeAndPromptsTheirHalf) {
  StepBudget budget(50'000, 10, 100'000, 5000);
  EXPECT_LE(settle(budget, 10'000, 20, 15'000), 35'000);
  EXPECT_GE(budget.units(), 870);  // 1250 would fill it
  EXPECT_LE(settle(budget, 10'000, 20, 900'000), 25'000);
  EXPECT_GE(budget.units(), 520);  // 750 would fill it
}

TEST(StepBudget, NeverStarvesAndNeverExceeds) {
  StepBudget budget(50'000, 10, 800, 100);
  settle(budget, 90'000, 20);
  EXPECT_EQ(budget.units(), 10);
  settle(budget, 0, 1);
  EXPECT_EQ(budget.units(), 800);
}

TEST(StepBudget, OneSlowStepIsSoonForgotten) {
  StepBudget budget(50'000, 10, 800, 800);
  budget.note(800, 5'000'000);
  EXPECT_EQ(budget.units(), 200);
  budget.note(10, 100);  // a step that says little, for it held little
  EXPECT_EQ(budget.units(), 200);
  budget.note(0, 500'000);  // no rows of prompts: not their fault
  EXPECT_EQ(budget.units(), 200);
  settle(budget, 100, 1);
  EXPECT_EQ(budget.units(), 800);
}

}  // namespace
}  // namespace fathom
