#include <cmath>

#include "base/float_types.h"
#include "ops/reference/backend.h"

namespace fathom::reference {

void ReferenceBackend::rms_norm(const RmsNormArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* in = args.in + row * args.width;
    float* out = args.out + row * args.width;
    const float inverse_rms =
        1.0f / std::sqrt(dot(in, in, args.width) / static_cast<float>(args.width) + args.eps);
    for (int64_t k = 0; k < args.width; ++k) {
      const float value = args.weight[k] * (in[k] * inverse_rms);
      out[k] = args.numerics == Numerics::kOfficial ? round_to_bf16(value) : value;
    }
  }
}

}  // namespace fathom::reference
