#include <cmath>

#include "base/float_types.h"
#include "cpu/context.h"

namespace fathom::cpu {

void rope_angles(const Context& context, const RopeAnglesArgs& args) {
  constexpr int64_t kWork = 100;  // a cosine and a sine in double
  run_rows(context, args.rows, kWork * args.pairs, [&](int64_t row, int) {
    for (int pair = 0; pair < args.pairs; ++pair) {
      // The angle is rounded to float32 first: part of the definition.
      const float angle = static_cast<float>(args.positions[row]) * args.inverse_frequencies[pair];
      args.cosines[row * args.pairs + pair] = static_cast<float>(std::cos(static_cast<double>(angle)));
      args.sines[row * args.pairs + pair] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  });
}

void rope(const Context& context, const RopeArgs& args) {
  const bool official = args.numerics == Numerics::kOfficial;
  const float sign = args.inverse ? -1.0f : 1.0f;
  run_rows(context, args.rows, int64_t{8} * args.heads * args.pairs, [&](int64_t row, int) {
    const float* cosines = args.cosines + row * args.pairs;
    const float* sines = args.sines + row * args.pairs;
    for (int head = 0; head < args.heads; ++head) {
      float* x = args.data + (row * args.heads + head) * args.head_dim + (args.head_dim - 2 * args.pairs);
      for (int pair = 0; pair < args.pairs; ++pair) {
        const float s = sign * sines[pair];
        const float a = x[2 * pair];
        const float b = x[2 * pair + 1];
        const float first = a * cosines[pair] - b * s;
        const float second = a * s + b * cosines[pair];
        x[2 * pair] = official ? round_to_bf16(first) : first;
        x[2 * pair + 1] = official ? round_to_bf16(second) : second;
      }
    }
  });
}

}  // namespace fathom::cpu
