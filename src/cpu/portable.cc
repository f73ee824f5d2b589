#include "cpu/generic/portable_vec.h"
#include "cpu/generic/table.h"
#include "cpu/kernels.h"

namespace fathom::cpu {

const struct Kernels* portable_kernels(void) {
  static const struct Kernels table = kernel_table("portable");
  return &table;
}

}  // namespace fathom::cpu
