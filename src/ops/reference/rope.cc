#include <cmath>

#include "base/float_types.h"
#include "ops/reference/backend.h"

namespace fathom::reference {

void ReferenceBackend::rope_angles(const RopeAnglesArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int pair = 0; pair < args.pairs; ++pair) {
      // The published model rounds the angle to float32 before taking cos and sin of that very number; at
      // position 10^6 the rounding is worth a visible rotation, so it is part of the definition.
      const float angle = static_cast<float>(args.positions[row]) * args.inverse_frequencies[pair];
      args.cosines[row * args.pairs + pair] = static_cast<float>(std::cos(static_cast<double>(angle)));
      args.sines[row * args.pairs + pair] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

void ReferenceBackend::rope(const RopeArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int head = 0; head < args.heads; ++head) {
      float* x = args.data + (row * args.heads + head) * args.head_dim + (args.head_dim - 2 * args.pairs);
      for (int pair = 0; pair < args.pairs; ++pair) {
        const float c = args.cosines[row * args.pairs + pair];
        const float s = args.inverse ? -args.sines[row * args.pairs + pair] : args.sines[row * args.pairs + pair];
        const float a = x[2 * pair];
        const float b = x[2 * pair + 1];
        x[2 * pair] = a * c - b * s;
        x[2 * pair + 1] = a * s + b * c;
        if (args.numerics == Numerics::kOfficial) {
          x[2 * pair] = round_to_bf16(x[2 * pair]);
          x[2 * pair + 1] = round_to_bf16(x[2 * pair + 1]);
        }
      }
    }
  }
}

}  // namespace fathom::reference
