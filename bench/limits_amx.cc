#include "limits_amx.h"

namespace fathom::bench {
namespace {

struct TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
void begin() {
  static const TileShapes shapes;
  asm volatile("ldtilecfg %0" : : "m"(shapes));
  asm volatile("tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3");
  asm volatile("tilezero %tmm4\n\ttilezero %tmm5\n\ttilezero %tmm6\n\ttilezero %tmm7");
}
void end() { asm volatile("tilerelease"); }

}  // namespace

void multiply_bf16_tiles(int64_t steps) {
  begin();
  for (int64_t step = 0; step < steps; ++step) {
    asm volatile("tdpbf16ps %tmm6, %tmm4, %tmm0\n\ttdpbf16ps %tmm7, %tmm4, %tmm1");
    asm volatile("tdpbf16ps %tmm6, %tmm5, %tmm2\n\ttdpbf16ps %tmm7, %tmm5, %tmm3");
  }
  end();
}

void multiply_int8_tiles(int64_t steps) {
  begin();
  for (int64_t step = 0; step < steps; ++step) {
    asm volatile("tdpbssd %tmm6, %tmm4, %tmm0\n\ttdpbssd %tmm7, %tmm4, %tmm1");
    asm volatile("tdpbssd %tmm6, %tmm5, %tmm2\n\ttdpbssd %tmm7, %tmm5, %tmm3");
  }
  end();
}

}  // namespace fathom::bench
