#include <algorithm>
#include <cmath>

#include "base/float_types.h"
#include "ops/reference/backend.h"

namespace fathom::reference {

void ReferenceBackend::engram_write(const EngramWriteArgs& args) {
  const int n = args.stream_count;
  const float dim = static_cast<float>(args.dim);
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* value = args.key_value + (row * (n + 1) + n) * args.dim;
    for (int stream = 0; stream < n; ++stream) {
      float* x = args.streams + (row * n + stream) * args.dim;
      const float* key = args.key_value + (row * (n + 1) + stream) * args.dim;
      const float* weight = args.gate_weight + stream * args.dim;
      float agreement = 0;
      for (int64_t k = 0; k < args.dim; ++k) agreement += x[k] * weight[k] * key[k];
      const float x_scale = 1.0f / std::sqrt(dot(x, x, args.dim) / dim + args.norm_eps);
      const float key_scale = 1.0f / std::sqrt(dot(key, key, args.dim) / dim + args.norm_eps);
      const float score = agreement * x_scale * key_scale / std::sqrt(dim);
      const bool masked = args.is_masked != nullptr && args.is_masked[row] != 0;
      // A text row's gate is never 0: near a score of 0 it is sigmoid(+-1e-3).
      const float gate = masked ? 0.0f : sigmoid(std::copysign(std::sqrt(std::max(std::fabs(score), 1e-6f)), score));
      for (int64_t k = 0; k < args.dim; ++k) {
        const float sum = x[k] + gate * value[k];
        x[k] = args.numerics == Numerics::kOfficial ? round_to_bf16(sum) : sum;
      }
    }
  }
}

}  // namespace fathom::reference
