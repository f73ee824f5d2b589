#include "cpu/kernels.h"
#include "cpu/avx2/vec.h"
#include "cpu/generic/table.h"

namespace fathom::cpu {

const struct Kernels* avx2_kernels(void) {
  static const struct Kernels table = kernel_table("avx2");
  return &table;
}

}  // namespace fathom::cpu
