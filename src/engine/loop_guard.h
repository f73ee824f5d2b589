// Notices when an answer goes round in circles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fathom {

enum class LoopGuardMode : uint8_t { kOff, kObserve, kStop };

struct LoopGuardOptions {
  LoopGuardMode mode = LoopGuardMode::kOff;
  int32_t period_tokens_max = 1024;  // longer cycles are not looked for; none below 1
  int32_t repeats_min = 4;           // copies one after the other that count as a loop, at least 2
  int32_t repeated_tokens_min = 64;  // and together at least this many tokens: 64 equal ones, or 4 times 16
};

struct LoopReport {
  bool found = false;
  int32_t period_tokens = 0;
  int64_t repeats = 0;      // whole copies, counted to the end of the loop
  int64_t first_token = 0;  // of the first copy, index in the answer
};

/// Looks at the generated ids only. Its verdict depends on nothing else, so it is the same for the same answer:
/// a loop is found at the first token at which the last `repeats_min` * period tokens or more, and no fewer than
/// `repeated_tokens_min`, are copies of one piece; its length is the shortest for which that is so.
/// A step compares the token with the `period_tokens_max` before it, some 0.4 us for 1024, and allocates nothing.
class LoopGuard {
 public:
  explicit LoopGuard(const LoopGuardOptions& options);
  /// Takes the next token, an id of 0 or more; true when a loop has been found, from then on always. With kOff
  /// it does nothing.
  bool take(int32_t id);
  /// The loop found first, with `repeats` counted as far as it went on.
  const LoopReport& report() const { return report_; }

 private:
  void remember(int32_t id);
  bool compare();

  LoopReport report_;
  bool goes_on_ = true;       // the loop that was found
  int64_t loop_tokens_ = 0;   // of it so far
  int64_t taken_ = 0;
  size_t periods_ = 0;        // rounded up to whole steps of the comparison
  std::vector<int32_t> history_;   // newest first from newest_ on
  size_t newest_ = 0;
  std::vector<int32_t> agreeing_;  // [period - 1]: last tokens that equal the one a period before them
  std::vector<int32_t> wanted_;    // [period - 1]: as many make a loop
};

}  // namespace fathom
