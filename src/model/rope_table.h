// Inverse frequencies of the rotary embedding; docs/model/backbone.md, "RoPE".
#pragma once

#include <vector>

#include "model/config.h"

namespace fathom {

/// 1 / base^(2i / rope_dim), in float32 as the published model computes it.
std::vector<float> rope_frequencies(double base, int rope_dim);
/// The same with YaRN's blend: slow pairs are divided by the factor, fast ones are left, a ramp in between.
/// Always on where it is used, however short the context.
std::vector<float> yarn_frequencies(double base, int rope_dim, const YarnConfig& yarn);

}  // namespace fathom
