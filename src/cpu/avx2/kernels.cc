#include "cpu/kernels.h"
#include "cpu/avx2/vec.h"
#include "cpu/avx2/fp4_dots.h"
#include "cpu/generic/table.h"

namespace fathom::cpu {
namespace {

struct Kernels avx2_table() {
  struct Kernels table = kernel_table("avx2");
  table.fp4_dots = fp4_dots;
  return table;
}

}  // namespace

const struct Kernels* avx2_kernels(void) {
  static const struct Kernels table = avx2_table();
  return &table;
}

}  // namespace fathom::cpu
