// Grids and levels of the IQ formats (docs/formats/blocks.md, "Codebooks"). Plain arrays without inline
// functions, so that kernel files of any instruction set may include this header.
#pragma once

#include <stdint.h>

namespace fathom {

template <int kEntries, int kDims>
struct IqGrid {
  int8_t value[kEntries][kDims];
};
struct IqSigns {
  uint8_t value[128];  // bit j set: element j is negative
};

extern const IqGrid<256, 8> kIq2XxsGrid;
extern const IqGrid<512, 8> kIq2XsGrid;
extern const IqGrid<1024, 8> kIq2SGrid;
extern const IqGrid<256, 4> kIq3XxsGrid;
extern const IqGrid<512, 4> kIq3SGrid;
extern const IqGrid<2048, 8> kIq1Grid;  // IQ1_S and IQ1_M; -1, 0, 1
extern const IqSigns kIqEvenSigns;      // seven stored bits -> eight signs, an even number of them minus

// IQ4_NL and IQ4_XS.
constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace fathom
