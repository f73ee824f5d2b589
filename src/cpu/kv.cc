// Quantisers, cache rows and the compressor's pooling.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/float_types.h"
#include "cpu/context.h"
#include "ops/kv_format.h"

namespace fathom::cpu {

void quantize_activations(const Context& context, const QuantizeActivationsArgs& args) {
  FATHOM_CHECK(args.width % 32 == 0, "width {}", args.width);
  run_rows(context, args.rows, 4 * args.width, [&](int64_t row, int) {
    context.kernels->fake_quantize_q8(args.in + row * args.width, args.out + row * args.width, args.width);
  });
}

// The scalar quantisers take some 20 operations an element.
constexpr int64_t kScalarWork = 20;

void store_kv(const Context& context, const StoreKvArgs& args) {
  run_rows(context, args.rows, kScalarWork * args.width, [&](int64_t row, int) {
    encode_kv_row(args.format, args.in + row * args.width, args.width, args.out[row]);
  });
}

void fake_quantize(const Context& context, const FakeQuantizeArgs& args) {
  run_rows(context, args.rows, kScalarWork * args.width, [&](int64_t row, int) {
    fake_quantize_kv_row(args.format, args.data + row * args.width, args.width);
  });
}

void compress_pair(const Context& context, const CompressPairArgs& args) {
  run_rows(context, args.rows, kScalarWork * args.width, [&](int64_t row, int) {
    const float* even = args.even_values[row];
    const float* odd = args.odd_values[row];
    for (int64_t k = 0; k < args.width; ++k) {
      const float even_gate = args.even_gates[row][k];
      const float odd_gate = args.odd_gates[row][k];
      const float largest = std::fmax(even_gate, odd_gate);
      const float even_weight = std::exp(even_gate - largest);
      const float odd_weight = std::exp(odd_gate - largest);
      const float sum = even_weight + odd_weight;
      const float value = even[k] * (even_weight / sum) + odd[k] * (odd_weight / sum);
      args.out[row * args.width + k] = args.numerics == Numerics::kOfficial ? round_to_bf16(value) : value;
    }
  });
}

void copy_rows(const Context& context, const CopyRowsArgs& args) {
  run_rows(context, args.rows, args.row_bytes / 16, [&](int64_t row, int) {
    if (args.to[row] != nullptr)
      std::memcpy(args.to[row], args.from[row], static_cast<size_t>(args.row_bytes));
  });
}

}  // namespace fathom::cpu
