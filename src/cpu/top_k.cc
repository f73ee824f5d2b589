#include "cpu/top_k.h"

#include <algorithm>
#include <limits>

#include "base/float_types.h"

namespace fathom::cpu {
namespace {

// Integers in the order of the floats, which tell all of them apart.
int32_t order_of(float score) {
  const auto bits = static_cast<int32_t>(bits_of_float(score));
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

// Greater means better: the score's order first, then the lower place.
uint64_t rank_of(int32_t order, int64_t place) {
  return uint64_t{static_cast<uint32_t>(order) ^ 0x80000000u} << 32 |
         static_cast<uint32_t>(~static_cast<uint32_t>(place));
}

// Keeps the `size` best ranks of those given, in room for a few times as many.
class Best {
 public:
  Best(uint64_t* ranks, int64_t room, int64_t size) : ranks_(ranks), room_(room), size_(size) {}
  void add(uint64_t rank) {
    if (rank < least_) return;
    ranks_[count_++] = rank;
    if (count_ < room_) return;
    shrink();
    least_ = ranks_[size_ - 1];
  }
  int64_t shrink() {
    if (count_ > size_) std::nth_element(ranks_, ranks_ + size_ - 1, ranks_ + count_, std::greater<>());
    return count_ = std::min(count_, size_);
  }

 private:
  uint64_t* ranks_;
  int64_t room_, size_, count_ = 0;
  uint64_t least_ = 0;
};

// As many runs have a score of at least this as places are wanted, so no lower score is among the best.
int32_t floor_of(Scratch& scratch, const int32_t* best, int64_t runs, int64_t size) {
  int32_t* copy = scratch.numbers.get(runs);
  std::copy(best, best + runs, copy);
  std::nth_element(copy, copy + size - 1, copy + runs, std::greater<>());
  return copy[size - 1];
}

}  // namespace

int64_t top_k_run(int64_t count, int64_t size) {
  constexpr int64_t kRunsForOne = 4;
  int64_t run = kTopKRun;
  while (run > 1 && count / run < kRunsForOne * size) run /= 2;
  return run;
}

void best_of_runs(const float* scores, int64_t count, int64_t run, int32_t* best) {
  for (int64_t begin = 0; begin < count; begin += run, ++best) {
    const int64_t end = std::min(begin + run, count);
    int32_t greatest = order_of(scores[begin]);
    for (int64_t place = begin + 1; place < end; ++place)
      greatest = std::max(greatest, order_of(scores[place]));
    *best = greatest;
  }
}

void top_k(Scratch& scratch, const float* scores, int64_t count, const int32_t* best, int64_t size,
           int32_t* out) {
  const int64_t room = 4 * size;
  uint64_t* ranks = scratch.order.get(room);
  Best kept(ranks, room, size);
  const int64_t run = top_k_run(count, size);
  if (run == 1) {
    for (int64_t place = 0; place < count; ++place) kept.add(rank_of(order_of(scores[place]), place));
  } else {
    const int64_t runs = (count + run - 1) / run;
    const int32_t floor = floor_of(scratch, best, runs, size);
    for (int64_t i = 0; i < runs; ++i) {
      if (best[i] < floor) continue;
      for (int64_t place = i * run; place < std::min((i + 1) * run, count); ++place)
        if (const int32_t order = order_of(scores[place]); order >= floor) kept.add(rank_of(order, place));
    }
  }
  const int64_t found = kept.shrink();
  for (int64_t slot = 0; slot < found; ++slot)
    out[slot] = static_cast<int32_t>(~static_cast<uint32_t>(ranks[slot]));
  std::sort(out, out + found);
  std::fill(out + found, out + size, -1);
}

}  // namespace fathom::cpu
