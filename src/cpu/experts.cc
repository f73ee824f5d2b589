// The experts' feed-forward networks: rows grouped by expert, then tiles over (expert, block of outputs).
#include <algorithm>

#include "cpu/matmul.h"

namespace fathom::cpu {
namespace {

// A choice is one (row, expert) pair; choices are numbered expert by expert, rows ascending, the shared
// expert last. One group is one expert with its choices.
struct Group {
  const ExpertWeights* weights;
  int64_t first_choice;
  int64_t choices;
  bool quantize;
  bool is_shared;
};

struct Plan {
  const ExpertFfnArgs* args;
  int64_t choices;  // of all groups
  int64_t group_count;
  const int32_t* groups;  // [group_count] expert, `experts` for the shared one
  const int32_t* first;   // [experts + 2] first choice of an expert
  const int32_t* row;     // [choices]
  const int32_t* slot;    // [choices] place in ids and weights
  const int32_t* choice;  // [rows * experts_per_token] the choice of a place
  float* hidden;          // [choices, inter]
  float* out;             // [choices, dim]
  PreparedRows in;         // [rows] for the routed experts' gate and up, in official numerics
  PreparedRows shared_in;  // [rows]
  PreparedRows down_in;    // [choices] of `hidden`, for the routed experts
  PreparedRows shared_down_in;

  Group group(int64_t index) const {
    const int32_t expert = groups[index];
    const bool is_shared = expert == args->experts;
    return {.weights = is_shared ? args->shared : args->routed + expert,
            .first_choice = first[expert],
            .choices = first[expert + 1] - first[expert],
            .quantize = is_shared ? args->quantize_shared : args->quantize_routed,
            .is_shared = is_shared};
  }
};

// Counting sort of the choices by expert.
Plan make_plan(const Context& context, const ExpertFfnArgs& args) {
  const int64_t places = args.rows * args.experts_per_token;
  const int64_t choices = places + args.rows;
  const int64_t experts = args.experts;
  int32_t* numbers = context.numbers->get(3 * (experts + 2) + 3 * choices);
  int32_t* groups = numbers;
  int32_t* first = groups + experts + 2;
  int32_t* next = first + experts + 2;
  int32_t* row = next + experts + 2;
  int32_t* slot = row + choices;
  int32_t* choice = slot + choices;
  std::fill(first, first + experts + 2, 0);
  for (int64_t place = 0; place < places; ++place) ++first[args.ids[place] + 1];
  for (int64_t expert = 0; expert < experts; ++expert) first[expert + 1] += first[expert];
  first[experts + 1] = static_cast<int32_t>(choices);
  std::copy(first, first + experts, next);
  for (int64_t place = 0; place < places; ++place) {
    const int32_t at = next[args.ids[place]]++;
    row[at] = static_cast<int32_t>(place / args.experts_per_token);
    slot[at] = static_cast<int32_t>(place);
    choice[place] = at;
  }
  for (int64_t r = 0; r < args.rows; ++r) row[places + r] = static_cast<int32_t>(r);
  int64_t group_count = 0;
  for (int32_t expert = 0; expert <= args.experts; ++expert)
    if (first[expert + 1] > first[expert]) groups[group_count++] = expert;
  return {.args = &args,
          .choices = choices,
          .group_count = group_count,
          .groups = groups,
          .first = first,
          .row = row,
          .slot = slot,
          .choice = choice,
          .hidden = context.floats->get(choices * args.inter),
          .out = context.more_floats->get(choices * args.dim)};
}

// hidden[:, begin, begin + outputs) of `choices` choices from `first` on: both projections, their product and
// its quantiser, whose groups of 32 do not cross blocks.
void project_up(const Context& context, Scratch& scratch, const Plan& plan, const Group& group, int64_t first,
                int64_t choices, int64_t begin, int64_t outputs) {
  const ExpertFfnArgs& args = *plan.args;
  const Kernels& kernels = *context.kernels;
  const bool official = args.numerics == Numerics::kOfficial;
  const float** in = scratch.in.get(choices);
  const uint8_t** prepared_in = scratch.prepared.get(choices);
  float** out = scratch.task_out.get(choices);
  float* up = scratch.values.get(choices * outputs);
  const float* source = group.is_shared ? args.shared_in : args.in;
  const PreparedRows& prepared = group.is_shared ? plan.shared_in : plan.in;
  for (int64_t m = 0; m < choices; ++m) {
    in[m] = source + plan.row[first + m] * args.dim;
    prepared_in[m] = prepared.row(plan.row[first + m]);
    out[m] = up + m * outputs;
  }
  const auto multiply = [&](const WeightMatrix& weight) {
    multiply_rows(kernels, scratch, weight, begin, outputs, {.in = in, .out = out, .rows = choices},
                  prepared.fit(weight) ? prepared_in : nullptr);
  };
  multiply(group.weights->up);
  for (int64_t m = 0; m < choices; ++m) out[m] = plan.hidden + (first + m) * args.inter + begin;
  multiply(group.weights->gate);
  if (official) kernels.round_to_bf16(up, choices * outputs);
  for (int64_t m = 0; m < choices; ++m) {
    if (official) kernels.round_to_bf16(out[m], outputs);
    const float weight = group.is_shared ? 1.0f : args.weights[plan.slot[first + m]];
    kernels.gated_product(out[m], up + m * outputs, weight, args.limit, outputs);
    if (official) kernels.round_to_bf16(out[m], outputs);
    if (group.quantize) kernels.fake_quantize_q8(out[m], out[m], outputs);
  }
}

void project_down(const Context& context, Scratch& scratch, const Plan& plan, const Group& group,
                  int64_t first, int64_t choices, int64_t begin, int64_t outputs) {
  const ExpertFfnArgs& args = *plan.args;
  const float** in = scratch.in.get(choices);
  const uint8_t** prepared_in = scratch.prepared.get(choices);
  float** out = scratch.task_out.get(choices);
  const PreparedRows& prepared = group.is_shared ? plan.shared_down_in : plan.down_in;
  const int64_t first_prepared = group.is_shared ? args.rows * args.experts_per_token : 0;
  for (int64_t m = 0; m < choices; ++m) {
    in[m] = plan.hidden + (first + m) * args.inter;
    prepared_in[m] = prepared.row(first + m - first_prepared);
    out[m] = plan.out + (first + m) * args.dim + begin;
  }
  const WeightMatrix& down = group.weights->down;
  multiply_rows(*context.kernels, scratch, down, begin, outputs, {.in = in, .out = out, .rows = choices},
                prepared.fit(down) ? prepared_in : nullptr);
  if (args.numerics == Numerics::kOfficial)
    for (int64_t m = 0; m < choices; ++m) context.kernels->round_to_bf16(out[m], outputs);
}

using Stage = void (*)(const Context&, Scratch&, const Plan&, const Group&, int64_t first, int64_t choices,
                       int64_t begin, int64_t outputs);

// The first expert stands for all.
bool has_tiles(const Context& context, const ExpertFfnArgs& args, const WeightMatrix& first) {
  return args.numerics == Numerics::kOfficial && multiplies_tiles(*context.kernels, first);
}

// Tasks over (group, block of its choices, block of outputs). In tiles, rows that share an expert are put side by
// side once a task.
void run_stage(const Context& context, const Plan& plan, Stage stage, const WeightMatrix& first_weight,
               int64_t block_outputs, int64_t work) {
  const int64_t outputs = first_weight.rows, cols = first_weight.cols;
  const bool tiled = has_tiles(context, *plan.args, first_weight);
  if (tiled && plan.args->rows > 1) block_outputs = context.kernels->bf16_block_weights;
  const int64_t output_blocks = (outputs + block_outputs - 1) / block_outputs;
  const int64_t block_choices = tiled ? context.kernels->bf16_block_rows : activation_block_rows(cols);
  int64_t most = 0;
  for (int64_t index = 0; index < plan.group_count; ++index) most = std::max(most, plan.group(index).choices);
  const int64_t choice_blocks = (most + block_choices - 1) / block_choices;
  run_tasks(context, plan.group_count * choice_blocks * output_blocks, work, [&](int64_t task, int thread) {
    const Group group = plan.group(task / (choice_blocks * output_blocks));
    const int64_t skipped = task / output_blocks % choice_blocks * block_choices;
    if (skipped >= group.choices) return;
    const int64_t begin = task % output_blocks * block_outputs;
    stage(context, context.scratch_of(thread), plan, group, group.first_choice + skipped,
          std::min(block_choices, group.choices - skipped), begin, std::min(block_outputs, outputs - begin));
  });
}

}  // namespace

void expert_ffn(const Context& context, const ExpertFfnArgs& args) {
  if (args.rows == 0) return;
  // A group of the quantiser is 32.
  constexpr int64_t kUpOutputs = 32, kDownOutputs = 64;
  Plan plan = make_plan(context, args);
  const int64_t work = plan.choices * args.inter * args.dim;
  const int64_t places = args.rows * args.experts_per_token;
  // The first expert stands for all: one of another type is multiplied in float32.
  const bool official = args.numerics == Numerics::kOfficial;
  if (official) {
    plan.in = prepare_rows(context, args.routed->gate, args.in, args.rows, *context.prepared);
    plan.shared_in =
        prepare_rows(context, args.shared->gate, args.shared_in, args.rows, *context.more_prepared);
  }
  run_stage(context, plan, project_up, args.routed->gate, kUpOutputs, 2 * work);
  if (official) {
    plan.down_in = prepare_rows(context, args.routed->down, plan.hidden, places, *context.prepared);
    plan.shared_down_in = prepare_rows(context, args.shared->down, plan.hidden + places * args.inter,
                                       args.rows, *context.more_prepared);
  }
  run_stage(context, plan, project_down, args.routed->down, kDownOutputs, work);

  // Ids ascend within a row, so the slots' order is the order of the sum; the shared expert comes last.
  run_rows(context, args.rows, (args.experts_per_token + 2) * args.dim / 2, [&](int64_t row, int) {
    float* out = args.out + row * args.dim;
    std::fill(out, out + args.dim, 0.0f);
    for (int slot = 0; slot < args.experts_per_token; ++slot) {
      const float* one = plan.out + plan.choice[row * args.experts_per_token + slot] * args.dim;
      context.kernels->add_scaled(out, 1.0f, one, args.dim);
    }
    context.kernels->add_scaled(out, 1.0f, plan.out + (places + row) * args.dim, args.dim);
    if (args.numerics == Numerics::kOfficial) context.kernels->round_to_bf16(out, args.dim);
  });
}

}  // namespace fathom::cpu
