#include <algorithm>
#include <cmath>

#include "cpu/context.h"

namespace fathom::cpu {

// The same scalar formulas as the definition: a last place here could choose another expert.
void route(const Context& context, const RouteArgs& args) {
  constexpr int64_t kWork = 40;  // exp, log1p and a root
  const int experts = args.experts;
  run_rows(context, args.rows, kWork * experts, [&](int64_t row, int thread) {
    float* score = context.scratch_of(thread).values.get(2 * experts);
    float* rank = score + experts;
    const bool image = args.is_image != nullptr && args.is_image[row] != 0;
    const float* bias = image && args.image_bias != nullptr ? args.image_bias : args.bias;
    for (int expert = 0; expert < experts; ++expert) {
      const float logit = args.logits[row * experts + expert];
      const float softplus = logit > 20.0f ? logit : std::log1p(std::exp(logit));
      score[expert] = std::sqrt(softplus);
      rank[expert] = score[expert] + bias[expert];
    }
    int32_t* ids = args.ids + row * args.experts_per_token;
    float* weights = args.weights + row * args.experts_per_token;
    // Insertion into a short list, best first; an equal later expert stays behind.
    int chosen = 0;
    for (int expert = 0; expert < experts; ++expert) {
      if (chosen == args.experts_per_token && !(rank[expert] > rank[ids[chosen - 1]])) continue;
      int slot = chosen < args.experts_per_token ? chosen++ : chosen - 1;
      for (; slot > 0 && rank[expert] > rank[ids[slot - 1]]; --slot) ids[slot] = ids[slot - 1];
      ids[slot] = expert;
    }
    std::sort(ids, ids + chosen);
    float sum = 0;
    for (int slot = 0; slot < chosen; ++slot) sum += score[ids[slot]];
    for (int slot = 0; slot < chosen; ++slot)
      weights[slot] = score[ids[slot]] / (sum + 1e-20f) * args.route_scale;
  });
}

}  // namespace fathom::cpu
