#include <algorithm>

#include "ops/reference/backend.h"

namespace fathom::reference {

void ReferenceBackend::embed_tokens(const EmbedTokensArgs& args) {
  const int64_t dim = args.table->cols;
  for (int64_t row = 0; row < args.rows; ++row) {
    float* first = args.streams + row * args.stream_count * dim;
    decode_row(*args.table, args.tokens[row], first);
    for (int stream = 1; stream < args.stream_count; ++stream) std::copy_n(first, dim, first + stream * dim);
  }
}

}  // namespace fathom::reference
