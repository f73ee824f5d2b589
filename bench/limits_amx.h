// The rate of tile products, in a file of its own for its compiler flags.
#pragma once

#include <cstdint>

namespace fathom::bench {

constexpr int kTileChains = 4;
/// `steps` products into each of `kTileChains` tiles, from tiles already loaded.
void multiply_bf16_tiles(int64_t steps);
void multiply_int8_tiles(int64_t steps);

}  // namespace fathom::bench
