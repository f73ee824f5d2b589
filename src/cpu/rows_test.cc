// The operations that work on one row at a time.
#include "cpu/testing.h"

namespace fathom::cpu_testing {
namespace {

constexpr Numerics kBoth[] = {Numerics::kExact, Numerics::kOfficial};

// Sums of squares in another order, and exp and roots on top: a few units in the last place of float32.
Bound near(Numerics numerics) {
  return {.of_norm = 1e-5f, .flipped_share = numerics == Numerics::kOfficial ? 0.01f : 0.0f};
}
constexpr Bound kEqual = {};

TEST(CpuRows, EmbedTokensCopiesToEveryStream) {
  const TestWeight table = make_weight(DType::kBF16, 50, 72, 1);
  const std::vector<int32_t> tokens = {49, 0, 7, 7, 21, 3, 48, 2, 1, 30, 5};
  check_operation(
      "embed_tokens", std::ssize(tokens), 4 * 72,
      [&](Backend& backend, int64_t first, int64_t rows, float* out) {
        backend.embed_tokens({.table = &table.matrix,
                              .tokens = tokens.data() + first,
                              .rows = rows,
                              .stream_count = 4,
                              .streams = out + first * 4 * 72});
      },
      kEqual);
}

TEST(CpuRows, HyperMix) {
  for (int64_t dim : {int64_t{24}, int64_t{512}}) {
    constexpr int64_t kRows = 21;
    const TestWeight fn = make_weight(DType::kF32, 24, 4 * dim, 2);
    const std::vector<float> streams = Random(3).bf16s(kRows * 4 * dim);
    const std::vector<float> base = Random(4).floats(24);
    const float scale[3] = {0.05f, -0.04f, 0.07f};
    check_operation("hyper_mix", kRows, 24,
                    [&](Backend& backend, int64_t first, int64_t rows, float* out) {
                      std::vector<float> pre(rows * 4), post(rows * 4), comb(rows * 16);
                      backend.hyper_mix({.streams = streams.data() + first * 4 * dim,
                                         .fn = &fn.matrix,
                                         .base = base.data(),
                                         .scale = scale,
                                         .rows = rows,
                                         .stream_count = 4,
                                         .dim = dim,
                                         .norm_eps = 1e-20f,
                                         .hyper_eps = 1e-6f,
                                         .sinkhorn_iterations = 20,
                                         .pre = pre.data(),
                                         .post = post.data(),
                                         .comb = comb.data()});
                      for (int64_t r = 0; r < rows; ++r) {
                        float* to = out + (first + r) * 24;
                        to = std::copy_n(pre.data() + r * 4, 4, to);
                        to = std::copy_n(post.data() + r * 4, 4, to);
                        std::copy_n(comb.data() + r * 16, 16, to);
                      }
                    },
                    {.of_norm = 2e-5f});
  }
}

TEST(CpuRows, HyperReadAndWriteAreEqual) {
  for (Numerics numerics : kBoth) {
    for (int64_t dim : {int64_t{5}, int64_t{160}}) {
      constexpr int64_t kRows = 19;
      Random random(5);
      const std::vector<float> streams = random.floats(kRows * 4 * dim), in = random.floats(kRows * dim);
      const std::vector<float> pre = random.floats(kRows * 4), comb = random.floats(kRows * 16);
      check_operation(
          "hyper_read", kRows, dim,
          [&](Backend& backend, int64_t first, int64_t rows, float* out) {
            backend.hyper_read({.streams = streams.data() + first * 4 * dim,
                                .pre = pre.data() + first * 4,
                                .rows = rows,
                                .stream_count = 4,
                                .dim = dim,
                                .out = out + first * dim,
                                .numerics = numerics});
          },
          kEqual);
      check_operation(
          "hyper_write", kRows, 4 * dim,
          [&](Backend& backend, int64_t first, int64_t rows, float* out) {
            std::copy_n(streams.data() + first * 4 * dim, rows * 4 * dim, out + first * 4 * dim);
            backend.hyper_write({.in = in.data() + first * dim,
                                 .post = pre.data() + first * 4,
                                 .comb = comb.data() + first * 16,
                                 .rows = rows,
                                 .stream_count = 4,
                                 .dim = dim,
                                 .streams = out + first * 4 * dim,
                                 .numerics = numerics});
          },
          kEqual);
    }
  }
}

TEST(CpuRows, RmsNorm) {
  for (Numerics numerics : kBoth) {
    for (int64_t width : {1, 17, 64, 1280}) {
      constexpr int64_t kRows = 18;
      const std::vector<float> in = Random(7).floats(kRows * width, 3.0f), weight = Random(8).floats(width);
      check_operation(
          "rms_norm", kRows, width,
          [&](Backend& backend, int64_t first, int64_t rows, float* out) {
            std::copy_n(in.data() + first * width, rows * width, out + first * width);
            backend.rms_norm({.in = out + first * width,
                              .weight = weight.data(),
                              .rows = rows,
                              .width = width,
                              .eps = 1e-20f,
                              .out = out + first * width,
                              .numerics = numerics});
          },
          near(numerics));
    }
  }
}

// Values over the whole range, ties of the grid and both zeros among them.
std::vector<float> quantiser_inputs(int64_t count) {
  std::vector<float> values = Random(9).floats(count);
  Random random(10);
  for (size_t k = 0; k < values.size(); ++k) {
    if (k / 32 % 5 == 1) values[k] = std::ldexp(values[k], random.integer(-30, 20));
    if (k / 32 % 5 == 2) values[k] = 0.0625f * static_cast<float>(random.integer(-96, 96));
    if (k / 32 % 5 == 3) values[k] = k % 2 == 0 ? -0.0f : std::ldexp(values[k], -25);
    if (k / 32 % 5 == 4) values[k] = std::ldexp(static_cast<float>(random.integer(-40, 40)), -9);
  }
  return values;
}

TEST(CpuRows, QuantizeActivationsIsEqual) {
  constexpr int64_t kRows = 23, kWidth = 320;
  const std::vector<float> in = quantiser_inputs(kRows * kWidth);
  check_operation(
      "quantize_activations", kRows, kWidth,
      [&](Backend& backend, int64_t first, int64_t rows, float* out) {
        backend.quantize_activations(
            {.in = in.data() + first * kWidth, .rows = rows, .width = kWidth, .out = out + first * kWidth});
      },
      kEqual);
}

TEST(CpuRows, FakeQuantizeIsEqual) {
  constexpr int64_t kRows = 20, kWidth = 64;
  const std::vector<float> in = quantiser_inputs(kRows * kWidth);
  for (KvFormat format :
       {KvFormat::kF32, KvFormat::kFp8Group32, KvFormat::kFp4Group32, KvFormat::kFp4Group16})
    check_operation(
        "fake_quantize", kRows, kWidth,
        [&](Backend& backend, int64_t first, int64_t rows, float* out) {
          std::copy_n(in.data() + first * kWidth, rows * kWidth, out + first * kWidth);
          backend.fake_quantize(
              {.data = out + first * kWidth, .rows = rows, .width = kWidth, .format = format});
        },
        kEqual);
}

TEST(CpuRows, StoreKvIsEqual) {
  constexpr int64_t kRows = 20, kWidth = 96;
  const std::vector<float> in = quantiser_inputs(kRows * kWidth);
  for (KvFormat format :
       {KvFormat::kF32, KvFormat::kFp8Group32, KvFormat::kFp4Group32, KvFormat::kFp4Group16})
    check_operation(
        "store_kv", kRows, kWidth,
        [&](Backend& backend, int64_t first, int64_t rows, float* out) {
          std::vector<std::byte*> to;
          for (int64_t r = first; r < first + rows; ++r) {
            std::fill_n(out + r * kWidth, kWidth, 0.0f);
            to.push_back(reinterpret_cast<std::byte*>(out + r * kWidth));
          }
          backend.store_kv({.in = in.data() + first * kWidth,
                            .rows = rows,
                            .width = kWidth,
                            .format = format,
                            .out = to.data()});
        },
        kEqual);
}

TEST(CpuRows, RopeIsEqual) {
  constexpr int64_t kRows = 18;
  constexpr int kHeads = 3, kWidth = 40, kPairs = 16;
  const std::vector<float> in = Random(11).bf16s(kRows * kHeads * kWidth);
  std::vector<int32_t> positions;
  std::vector<float> frequencies;
  for (int r = 0; r < kRows; ++r) positions.push_back(r * r * 3001);
  for (int pair = 0; pair < kPairs; ++pair) frequencies.push_back(std::pow(160000.0f, -pair / 16.0f));
  for (Numerics numerics : kBoth)
    for (bool inverse : {false, true})
      check_operation(
          "rope", kRows, kHeads * kWidth,
          [&](Backend& backend, int64_t first, int64_t rows, float* out) {
            std::vector<float> cosines(rows * kPairs), sines(rows * kPairs);
            backend.rope_angles({.positions = positions.data() + first,
                                 .inverse_frequencies = frequencies.data(),
                                 .rows = rows,
                                 .pairs = kPairs,
                                 .cosines = cosines.data(),
                                 .sines = sines.data()});
            float* data = out + first * kHeads * kWidth;
            std::copy_n(in.data() + first * kHeads * kWidth, rows * kHeads * kWidth, data);
            backend.rope({.data = data,
                          .cosines = cosines.data(),
                          .sines = sines.data(),
                          .rows = rows,
                          .heads = kHeads,
                          .head_dim = kWidth,
                          .pairs = kPairs,
                          .inverse = inverse,
                          .numerics = numerics});
          },
          kEqual);
}

TEST(CpuRows, CompressPairIsEqual) {
  constexpr int64_t kRows = 18, kWidth = 48;
  const std::vector<float> in = Random(12).floats(kRows * 4 * kWidth, 4.0f);
  for (Numerics numerics : kBoth)
    check_operation(
        "compress_pair", kRows, kWidth,
        [&](Backend& backend, int64_t first, int64_t rows, float* out) {
          std::vector<const float*> part[4];
          for (int64_t r = first; r < first + rows; ++r)
            for (int p = 0; p < 4; ++p) part[p].push_back(in.data() + (r * 4 + p) * kWidth);
          backend.compress_pair({.even_values = part[0].data(),
                                 .even_gates = part[1].data(),
                                 .odd_values = part[2].data(),
                                 .odd_gates = part[3].data(),
                                 .rows = rows,
                                 .width = kWidth,
                                 .out = out + first * kWidth,
                                 .numerics = numerics});
        },
        kEqual);
}

TEST(CpuRows, CopyRowsSkipsNullTargets) {
  constexpr int64_t kRows = 18, kWidth = 6;
  const std::vector<float> in = Random(13).floats(kRows * kWidth);
  check_operation(
      "copy_rows", kRows, kWidth,
      [&](Backend& backend, int64_t first, int64_t rows, float* out) {
        std::vector<const void*> from;
        std::vector<void*> to;
        for (int64_t r = first; r < first + rows; ++r) {
          from.push_back(in.data() + r * kWidth);
          to.push_back(r % 3 == 1 ? nullptr : out + r * kWidth);
        }
        backend.copy_rows({.from = from.data(),
                           .to = to.data(),
                           .rows = rows,
                           .row_bytes = kWidth * static_cast<int64_t>(sizeof(float))});
      },
      kEqual);
}

TEST(CpuRows, RouteIsEqualAndTiesGoToTheLowerExpert) {
  constexpr int64_t kRows = 40;
  constexpr int kExperts = 24, kChosen = 6;
  std::vector<float> logits = Random(14).floats(kRows * kExperts, 4.0f);
  // Coarse logits and biases, so that many ranks are equal.
  for (float& logit : logits) logit = std::round(logit);
  std::vector<float> bias(kExperts, 0.0f), image_bias(kExperts, 0.25f);
  bias[3] = 1.0f;
  image_bias[20] = 3.0f;
  std::vector<uint8_t> is_image(kRows);
  for (size_t r = 0; r < kRows; ++r) is_image[r] = r % 4 == 2;
  check_operation(
      "route", kRows, 2 * kChosen,
      [&](Backend& backend, int64_t first, int64_t rows, float* out) {
        std::vector<int32_t> ids(rows * kChosen);
        std::vector<float> weights(rows * kChosen);
        backend.route({.logits = logits.data() + first * kExperts,
                       .bias = bias.data(),
                       .image_bias = image_bias.data(),
                       .is_image = is_image.data() + first,
                       .rows = rows,
                       .experts = kExperts,
                       .experts_per_token = kChosen,
                       .route_scale = 1.5f,
                       .ids = ids.data(),
                       .weights = weights.data()});
        for (int64_t r = 0; r < rows; ++r) {
          float* to = out + (first + r) * 2 * kChosen;
          to = std::copy_n(ids.data() + r * kChosen, kChosen, to);
          std::copy_n(weights.data() + r * kChosen, kChosen, to);
        }
      },
      kEqual);
}

TEST(CpuRows, EngramWrite) {
  constexpr int64_t kRows = 19, kDim = 100, kStreams = 4;
  Random random(15);
  const std::vector<float> streams = random.bf16s(kRows * kStreams * kDim);
  const std::vector<float> key_value = random.bf16s(kRows * (kStreams + 1) * kDim);
  const std::vector<float> gate_weight = random.floats(kStreams * kDim);
  std::vector<uint8_t> is_masked(kRows);
  for (size_t r = 0; r < kRows; ++r) is_masked[r] = r % 5 == 3;
  for (Numerics numerics : kBoth)
    check_operation(
        "engram_write", kRows, kStreams * kDim,
        [&](Backend& backend, int64_t first, int64_t rows, float* out) {
          float* x = out + first * kStreams * kDim;
          std::copy_n(streams.data() + first * kStreams * kDim, rows * kStreams * kDim, x);
          backend.engram_write({.key_value = key_value.data() + first * (kStreams + 1) * kDim,
                                .gate_weight = gate_weight.data(),
                                .is_masked = is_masked.data() + first,
                                .rows = rows,
                                .stream_count = kStreams,
                                .dim = kDim,
                                .norm_eps = 1e-20f,
                                .streams = x,
                                .numerics = numerics});
        },
        near(numerics));
}

}  // namespace
}  // namespace fathom::cpu_testing
