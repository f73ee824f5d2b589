#include <algorithm>
#include <cmath>

#include "cpu/context.h"

namespace fathom::cpu {

void engram_write(const Context& context, const EngramWriteArgs& args) {
  const Kernels& kernels = *context.kernels;
  const int n = args.stream_count;
  const float dim = static_cast<float>(args.dim);
  run_rows(context, args.rows, 6 * n * args.dim, [&](int64_t row, int) {
    const float* value = args.key_value + (row * (n + 1) + n) * args.dim;
    const bool masked = args.is_masked != nullptr && args.is_masked[row] != 0;
    for (int stream = 0; stream < n; ++stream) {
      float* x = args.streams + (row * n + stream) * args.dim;
      const float* key = args.key_value + (row * (n + 1) + stream) * args.dim;
      const float agreement = kernels.dot3(x, args.gate_weight + stream * args.dim, key, args.dim);
      const float x_scale = 1.0f / std::sqrt(kernels.sum_of_squares(x, args.dim) / dim + args.norm_eps);
      const float key_scale = 1.0f / std::sqrt(kernels.sum_of_squares(key, args.dim) / dim + args.norm_eps);
      const float score = agreement * x_scale * key_scale / std::sqrt(dim);
      const float signed_root = std::copysign(std::sqrt(std::max(std::fabs(score), 1e-6f)), score);
      const float gate = masked ? 0.0f : 1.0f / (1.0f + std::exp(-signed_root));
      kernels.add_scaled(x, gate, value, args.dim);
      if (args.numerics == Numerics::kOfficial) kernels.round_to_bf16(x, args.dim);
    }
  });
}

}  // namespace fathom::cpu
