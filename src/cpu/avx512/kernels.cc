// g++ 12 warns about the undefined operands inside its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "cpu/kernels.h"
#include "cpu/avx512/vec.h"
#include "cpu/generic/table.h"

namespace fathom::cpu {

const struct Kernels* avx512_kernels(void) {
  static const struct Kernels table = kernel_table("avx512");
  return &table;
}

}  // namespace fathom::cpu
