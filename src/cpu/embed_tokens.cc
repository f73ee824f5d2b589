#include <algorithm>

#include "cpu/context.h"

namespace fathom::cpu {

void embed_tokens(const Context& context, const EmbedTokensArgs& args) {
  const int64_t dim = args.table->cols;
  run_rows(context, args.rows, 2 * args.stream_count * dim, [&](int64_t row, int) {
    float* first = args.streams + row * args.stream_count * dim;
    decode_row(*args.table, args.tokens[row], first);
    for (int stream = 1; stream < args.stream_count; ++stream) std::copy_n(first, dim, first + stream * dim);
  });
}

}  // namespace fathom::cpu
