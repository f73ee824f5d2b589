#include <cmath>
#include <cstring>

#include "base/float_types.h"
#include "ops/kv_format.h"
#include "ops/reference/backend.h"

namespace fathom::reference {

void ReferenceBackend::store_kv(const StoreKvArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row)
    encode_kv_row(args.format, args.in + row * args.width, args.width, args.out[row]);
}

void ReferenceBackend::fake_quantize(const FakeQuantizeArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row)
    fake_quantize_kv_row(args.format, args.data + row * args.width, args.width);
}

void ReferenceBackend::compress_pair(const CompressPairArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
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
  }
}

void ReferenceBackend::copy_rows(const CopyRowsArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row)
    if (args.to[row] != nullptr)
      std::memcpy(args.to[row], args.from[row], static_cast<size_t>(args.row_bytes));
}

}  // namespace fathom::reference
