// What a backend's working memory follows from.
#pragma once

#include <cstdint>

namespace fathom {

/// The largest of everything that steps of a model give to operations.
struct WorkShape {
  int64_t rows = 0;            // of a step
  int64_t context_tokens = 0;  // index keys that a row may see
  int streams = 0;
  int64_t dim = 0;
  int64_t widest_input = 0;  // columns of the widest matrix, hyper-connections' apart
  int heads = 0, head_dim = 0;
  int output_groups = 0;  // of attention's first output matrix
  int window = 0, top_k = 0;
  int index_heads = 0, index_dim = 0;
  int candidate_block = 0, candidate_blocks = 0;
  int experts = 0, experts_per_token = 0;
  int64_t inter = 0;
};

}  // namespace fathom
