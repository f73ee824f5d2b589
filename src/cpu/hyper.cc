// Hyper-connections: the coefficients of a sub-layer, reading its input and writing its output back.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "cpu/context.h"

namespace fathom::cpu {
namespace {

constexpr int kMostStreams = 8;

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

void normalise_columns(float* comb, int n, float eps) {
  for (int k = 0; k < n; ++k) {
    float sum = 0;
    for (int j = 0; j < n; ++j) sum += comb[j * n + k];
    for (int j = 0; j < n; ++j) comb[j * n + k] /= sum + eps;
  }
}

void normalise_rows(float* comb, int n, float eps) {
  for (int j = 0; j < n; ++j) {
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += comb[j * n + k];
    for (int k = 0; k < n; ++k) comb[j * n + k] /= sum + eps;
  }
}

// Ends on the column step, as the definition does.
void sinkhorn(float* comb, int n, int iterations, float eps) {
  for (int source = 0; source < n; ++source) {
    float* row = comb + source * n;
    const float largest = *std::max_element(row, row + n);
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += row[k] = std::exp(row[k] - largest);
    for (int k = 0; k < n; ++k) row[k] = row[k] / sum + eps;
  }
  normalise_columns(comb, n, eps);
  for (int iteration = 1; iteration < iterations; ++iteration) {
    normalise_rows(comb, n, eps);
    normalise_columns(comb, n, eps);
  }
}

// From the raw projections of one row to its coefficients.
void finish_mix(const HyperMixArgs& args, int64_t row, const float* projections, float inverse_rms) {
  const int n = args.stream_count;
  float* comb = args.comb + row * n * n;
  for (int j = 0; j < n; ++j) {
    args.pre[row * n + j] =
        sigmoid(projections[j] * inverse_rms * args.scale[0] + args.base[j]) + args.hyper_eps;
    args.post[row * n + j] =
        2.0f * sigmoid(projections[n + j] * inverse_rms * args.scale[1] + args.base[n + j]);
    for (int k = 0; k < n; ++k) {
      const int m = 2 * n + j * n + k;
      comb[j * n + k] = projections[m] * inverse_rms * args.scale[2] + args.base[m];
    }
  }
  sinkhorn(comb, n, args.sinkhorn_iterations, args.hyper_eps);
}

}  // namespace

void hyper_mix(const Context& context, const HyperMixArgs& args) {
  const int64_t mixes = (2 + args.stream_count) * args.stream_count;
  const int64_t width = args.stream_count * args.dim;
  float* projections = context.floats->get(args.rows * mixes);
  grouped_linear(context, {.in = args.streams,
                           .weight = args.fn,
                           .rows = args.rows,
                           .groups = 1,
                           .out = projections,
                           .round_to_bf16 = false});
  run_rows(context, args.rows, 8 * args.sinkhorn_iterations * mixes, [&](int64_t row, int) {
    const float squares = context.kernels->sum_of_squares(args.streams + row * width, width);
    const float inverse_rms = 1.0f / std::sqrt(squares / static_cast<float>(width) + args.norm_eps);
    finish_mix(args, row, projections + row * mixes, inverse_rms);
  });
}

void hyper_read(const Context& context, const HyperReadArgs& args) {
  const int n = args.stream_count;
  run_rows(context, args.rows, n * args.dim, [&](int64_t row, int) {
    float* out = args.out + row * args.dim;
    context.kernels->mix(args.streams + row * n * args.dim, args.pre + row * n, n, out, args.dim);
    if (args.numerics == Numerics::kOfficial) context.kernels->round_to_bf16(out, args.dim);
  });
}

void hyper_write(const Context& context, const HyperWriteArgs& args) {
  const int n = args.stream_count;
  FATHOM_CHECK(n <= kMostStreams, "{} streams", n);
  run_rows(context, args.rows, n * n * args.dim, [&](int64_t row, int) {
    float* streams = args.streams + row * n * args.dim;
    context.kernels->mix_back(args.in + row * args.dim, args.post + row * n, args.comb + row * n * n, n,
                              streams, args.dim);
    if (args.numerics == Numerics::kOfficial) context.kernels->round_to_bf16(streams, n * args.dim);
  });
}

}  // namespace fathom::cpu
