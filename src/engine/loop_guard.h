// Notices when an answer goes round in circles.
#pragma once

#include <cstdint>
#include <vector>

namespace fathom {

enum class LoopGuardMode : uint8_t { kOff, kObserve, kStop };

struct LoopGuardOptions {
  LoopGuardMode mode = LoopGuardMode::kOff;
  int32_t period_tokens_max = 1024;  // longer cycles are not looked for
  int32_t repeats_min = 4;           // copies one after the other that count as a loop
  int32_t repeated_tokens_min = 128; // and together at least this many tokens
};

struct LoopReport {
  bool found = false;
  int32_t period_tokens = 0;
  int64_t repeats = 0;      // whole copies, counted to the end of the answer
  int64_t first_token = 0;  // of the first copy, index in the answer
};

/// Looks at the generated ids only. Its verdict depends on nothing else, so it is the same for the same answer.
/// A step costs amortised constant time, at worst proportional to period_tokens_max.
class LoopGuard {
 public:
  explicit LoopGuard(const LoopGuardOptions& options);
  /// Takes the next token; true when a loop has been found, from then on always.
  bool take(int32_t id);
  /// The loop found first, with `repeats` counted as far as it went on.
  const LoopReport& report() const { return report_; }

 private:
  LoopGuardOptions options_;
  LoopReport report_;
  std::vector<int32_t> ids_;
};

}  // namespace fathom
