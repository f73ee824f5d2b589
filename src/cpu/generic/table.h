// The table of the functions above, for the vector vocabulary they were compiled with.
#pragma once

#include "cpu/generic/attention.h"
#include "cpu/generic/decode.h"
#include "cpu/generic/dot.h"
#include "cpu/generic/math.h"
#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE struct Kernels kernel_table(const char* name) {
  struct Kernels table = {};
  table.name = name;
  table.fused_rows = kFusedRows;
  table.decodes = is_generic;
  table.is_fused = is_generic;
  table.decode = decode;
  table.dot_encoded = dot_encoded;
  table.dot_panel = dot_panel;
  table.decode_q8 = decode_q8;
  table.decode_q4k = decode_q4k;
  table.decode_q4c = decode_q4c;
  table.fake_quantize_q8 = fake_quantize_q8;
  table.round_to_bf16 = round_to_bf16;
  table.sum_of_squares = sum_of_squares;
  table.dot3 = dot3;
  table.scale_by = scale_by;
  table.mix = mix;
  table.mix_back = mix_back;
  table.add_scaled = add_scaled;
  table.gated_product = gated_product;
  table.softmax_block = softmax_block;
  table.weighted_values = weighted_values;
  table.combine_heads = combine_heads;
  return table;
}

}  // namespace
}  // namespace fathom::cpu
