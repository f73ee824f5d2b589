#include "cpu/kernels.h"
#include "tensor/formats/codebooks.h"

namespace fathom::cpu {

struct IqTables iq_tables(void) {
  return {.iq2_xxs = kIq2XxsGrid.value[0],
          .iq2_xs = kIq2XsGrid.value[0],
          .iq2_s = kIq2SGrid.value[0],
          .iq3_xxs = kIq3XxsGrid.value[0],
          .iq3_s = kIq3SGrid.value[0],
          .iq1 = kIq1Grid.value[0],
          .even_signs = kIqEvenSigns.value};
}

}  // namespace fathom::cpu
