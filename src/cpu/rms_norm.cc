#include <cmath>

#include "cpu/context.h"

namespace fathom::cpu {

void rms_norm(const Context& context, const RmsNormArgs& args) {
  const Kernels& kernels = *context.kernels;
  run_rows(context, args.rows, 3 * args.width, [&](int64_t row, int) {
    const float* in = args.in + row * args.width;
    float* out = args.out + row * args.width;
    const float squares = kernels.sum_of_squares(in, args.width);
    const float inverse_rms = 1.0f / std::sqrt(squares / static_cast<float>(args.width) + args.eps);
    kernels.scale_by(in, args.weight, inverse_rms, out, args.width);
    if (args.numerics == Numerics::kOfficial) kernels.round_to_bf16(out, args.width);
  });
}

}  // namespace fathom::cpu
