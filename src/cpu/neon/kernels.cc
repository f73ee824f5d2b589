#include "cpu/kernels.h"
#include "cpu/neon/vec.h"
#include "cpu/neon/blocks.h"
#include "cpu/generic/table.h"

namespace fathom::cpu {
namespace {

int decodes_and_fuses(enum Encoding encoding) { return is_generic(encoding) || encoding == kEncodingIq2Xxs; }

void decode_any(const struct EncodedMatrix* m, int64_t row, int64_t count, float* panel, int64_t stride) {
  if (m->encoding == kEncodingIq2Xxs) return decode_rows(kEncodingIq2Xxs, m, row, count, panel, stride);
  decode(m, row, count, panel, stride);
}

void dot_any(const struct EncodedMatrix* m, int64_t row, int64_t count, const struct DotRows* in) {
  if (m->encoding == kEncodingIq2Xxs) return dot_encoded_as(kEncodingIq2Xxs, m, row, count, in);
  dot_encoded(m, row, count, in);
}

struct Kernels neon_table() {
  make_iq2_xxs_tables();
  struct Kernels table = kernel_table("neon");
  table.decodes = decodes_and_fuses;
  table.is_fused = decodes_and_fuses;
  table.decode = decode_any;
  table.dot_encoded = dot_any;
  return table;
}

}  // namespace

const struct Kernels* neon_kernels(void) {
  static const struct Kernels table = neon_table();
  return &table;
}

}  // namespace fathom::cpu
