// Hyper-connections: reading a sub-layer's input from the streams and writing its output back.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/float_types.h"
#include "ops/reference/backend.h"

namespace fathom::reference {
namespace {

float rounded(float value, Numerics numerics) {
  return numerics == Numerics::kOfficial ? round_to_bf16(value) : value;
}

// Softmax over destinations, then alternating normalisation, ending on columns: columns sum to one, rows only
// nearly. A final row step would change the model.
void sinkhorn(float* comb, int n, int iterations, float eps) {
  for (int source = 0; source < n; ++source) {
    float* row = comb + source * n;
    const float largest = *std::max_element(row, row + n);
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += row[k] = std::exp(row[k] - largest);
    for (int k = 0; k < n; ++k) row[k] = row[k] / sum + eps;
  }
  const auto normalise_columns = [&] {
    for (int k = 0; k < n; ++k) {
      float sum = 0;
      for (int j = 0; j < n; ++j) sum += comb[j * n + k];
      for (int j = 0; j < n; ++j) comb[j * n + k] /= sum + eps;
    }
  };
  const auto normalise_rows = [&] {
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int k = 0; k < n; ++k) sum += comb[j * n + k];
      for (int k = 0; k < n; ++k) comb[j * n + k] /= sum + eps;
    }
  };
  normalise_columns();
  for (int iteration = 1; iteration < iterations; ++iteration) {
    normalise_rows();
    normalise_columns();
  }
}

}  // namespace

void ReferenceBackend::hyper_mix(const HyperMixArgs& args) {
  const int n = args.stream_count;
  const int64_t width = n * args.dim;
  std::vector<float> fn_row(static_cast<size_t>(width));
  std::vector<float> mixes(static_cast<size_t>((2 + n) * n));
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.streams + row * width;
    const float inverse_rms = 1.0f / std::sqrt(dot(x, x, width) / static_cast<float>(width) + args.norm_eps);
    for (int m = 0; m < (2 + n) * n; ++m) {
      decode_row(*args.fn, m, fn_row.data());
      mixes[static_cast<size_t>(m)] = dot(fn_row.data(), x, width) * inverse_rms;
    }
    float* comb = args.comb + row * n * n;
    for (int j = 0; j < n; ++j) {
      args.pre[row * n + j] =
          sigmoid(mixes[static_cast<size_t>(j)] * args.scale[0] + args.base[j]) + args.hyper_eps;
      args.post[row * n + j] =
          2.0f * sigmoid(mixes[static_cast<size_t>(n + j)] * args.scale[1] + args.base[n + j]);
      for (int k = 0; k < n; ++k) {
        const int m = 2 * n + j * n + k;
        comb[j * n + k] = mixes[static_cast<size_t>(m)] * args.scale[2] + args.base[m];
      }
    }
    sinkhorn(comb, n, args.sinkhorn_iterations, args.hyper_eps);
  }
}

void ReferenceBackend::hyper_read(const HyperReadArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t channel = 0; channel < args.dim; ++channel) {
      float sum = 0;
      for (int j = 0; j < args.stream_count; ++j)
        sum += args.pre[row * args.stream_count + j] *
               args.streams[(row * args.stream_count + j) * args.dim + channel];
      args.out[row * args.dim + channel] = rounded(sum, args.numerics);
    }
  }
}

void ReferenceBackend::hyper_write(const HyperWriteArgs& args) {
  const int n = args.stream_count;
  std::vector<float> old(static_cast<size_t>(n));
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* comb = args.comb + row * n * n;
    for (int64_t channel = 0; channel < args.dim; ++channel) {
      float* x = args.streams + row * n * args.dim + channel;
      for (int j = 0; j < n; ++j) old[static_cast<size_t>(j)] = x[j * args.dim];
      for (int k = 0; k < n; ++k) {
        float mixed = 0;
        for (int j = 0; j < n; ++j) mixed += comb[j * n + k] * old[static_cast<size_t>(j)];
        x[k * args.dim] =
            rounded(args.post[row * n + k] * args.in[row * args.dim + channel] + mixed, args.numerics);
      }
    }
  }
}

}  // namespace fathom::reference
