#include <vector>

#include "base/check.h"
#include "base/float_types.h"
#include "ops/reference/backend.h"
#include "tensor/quantize.h"

namespace fathom::reference {

void ReferenceBackend::quantize_activations(const QuantizeActivationsArgs& args) {
  FATHOM_CHECK(args.width % 32 == 0, "width {}", args.width);
  for (int64_t row = 0; row < args.rows; ++row)
    fake_quantize_q8(args.in + row * args.width, args.out + row * args.width, args.width);
}

void ReferenceBackend::linear(const LinearArgs& args) {
  grouped_linear({.in = args.in,
                  .weight = args.weight,
                  .rows = args.rows,
                  .groups = 1,
                  .out = args.out,
                  .round_to_bf16 = args.round_to_bf16});
}

void ReferenceBackend::grouped_linear(const GroupedLinearArgs& args) {
  const int64_t cols = args.weight->cols;
  const int64_t outputs = args.weight->rows;
  const int64_t outputs_per_group = outputs / args.groups;
  std::vector<float> weight_row(static_cast<size_t>(cols));
  for (int64_t output = 0; output < outputs; ++output) {
    decode_row(*args.weight, output, weight_row.data());
    const int64_t group = output / outputs_per_group;
    for (int64_t row = 0; row < args.rows; ++row) {
      const float value = dot(args.in + (row * args.groups + group) * cols, weight_row.data(), cols);
      args.out[row * outputs + output] = args.round_to_bf16 ? round_to_bf16(value) : value;
    }
  }
}

}  // namespace fathom::reference
