#include <algorithm>
#include <limits>

#include "base/check.h"
#include "cpu/matmul.h"

namespace fathom::cpu {
namespace {

struct TaskShape {
  int64_t rows, outputs;
};

int64_t count_blocks(int64_t whole, int64_t block) { return (whole + block - 1) / block; }

// With few rows a task takes more weight rows, so that it is worth its start; with few weight rows, fewer
// activation rows, so that every thread has some.
TaskShape shape_of_rows(const GroupedLinearArgs& args, int threads) {
  constexpr int64_t kWorkOfTask = 192 * 1024;
  constexpr int64_t kFewestRows = 12;
  const int64_t cols = args.weight->cols;
  int64_t rows = std::min(args.rows, activation_block_rows(cols));
  const int64_t most_panels = count_blocks(args.weight->rows, kPanelRows);
  while (rows >= 2 * kFewestRows && most_panels * count_blocks(args.rows, rows) < 2 * threads)
    rows = (rows + 1) / 2;
  const int64_t fair = most_panels * count_blocks(args.rows, rows) / (4 * threads);
  int64_t panels = std::clamp<int64_t>(kWorkOfTask / (rows * cols * kPanelRows), 1, std::max<int64_t>(1, fair));
  if (panels > 1) panels = panels / 2 * 2;  // the scales of FP8 are shared by 32 rows
  return {.rows = rows, .outputs = panels * kPanelRows};
}

// The blocks with the least time of the busiest thread. The costs, in cycles for 32 columns and only as good as to
// rank shapes, are those of a product of 16 weight rows and 16 activation rows, of decoding a weight row, of
// bringing 16 activation rows near, and of a task.
TaskShape shape_of_tiles(const GroupedLinearArgs& args, const Kernels& kernels, int threads) {
  constexpr int64_t kProduct = 20, kDecode = 8, kBring = 60, kTask = 100;
  constexpr int64_t kStep = 2 * kTileRows;
  const int64_t group_outputs = args.weight->rows / args.groups;
  TaskShape best = {};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t outputs = kStep; outputs <= kernels.bf16_block_weights; outputs *= 2) {
    for (int64_t most_rows = kStep; most_rows <= kernels.bf16_block_rows; most_rows *= 2) {
      const int64_t row_blocks = count_blocks(args.rows, most_rows);
      const int64_t rows = count_blocks(count_blocks(args.rows, row_blocks), kStep) * kStep;
      const int64_t tasks = args.groups * count_blocks(group_outputs, outputs) * row_blocks;
      const int64_t weight_tiles = count_blocks(outputs, kTileRows), tiles = count_blocks(rows, kTileRows);
      const int64_t cost = count_blocks(tasks, threads) *
                           (weight_tiles * tiles * kProduct + outputs * kDecode + tiles * kBring + kTask);
      if (cost < least) best = {.rows = rows, .outputs = outputs};
      least = std::min(least, cost);
    }
  }
  return best;
}

}  // namespace

// Tasks are (block of weight rows) x (block of activation rows).
void grouped_linear(const Context& context, const GroupedLinearArgs& args) {
  const WeightMatrix& weight = *args.weight;
  const int64_t group_outputs = weight.rows / args.groups;
  FATHOM_CHECK(group_outputs * args.groups == weight.rows, "{} rows in {} groups", weight.rows, args.groups);
  if (args.rows == 0 || weight.rows == 0) return;

  const bool has_tiles = args.inputs_are_bf16 && multiplies_tiles(*context.kernels, weight);
  PreparedRows prepared;
  if (has_tiles && args.rows > 1)
    prepared = prepare_tiles(context, weight, args.in, args.rows, args.groups, *context.prepared);
  else if (args.inputs_are_bf16)
    prepared = prepare_rows(context, weight, args.in, args.rows * args.groups, *context.prepared);
  const TaskShape shape = has_tiles && prepared.fit(weight)
                              ? shape_of_tiles(args, *context.kernels, context.thread_count())
                              : shape_of_rows(args, context.thread_count());
  const int64_t block_rows = shape.rows;
  const int64_t row_blocks = count_blocks(args.rows, block_rows);
  const int64_t block_outputs = std::min(shape.outputs, group_outputs);
  const int64_t output_blocks = count_blocks(group_outputs, block_outputs);
  const int64_t tasks = args.groups * output_blocks * row_blocks;

  run_tasks(context, tasks, args.rows * weight.rows * weight.cols, [&](int64_t task, int thread) {
    Scratch& scratch = context.scratch_of(thread);
    const int64_t group = task / (output_blocks * row_blocks);
    const int64_t first_output = task / row_blocks % output_blocks * block_outputs;
    const int64_t outputs = std::min(block_outputs, group_outputs - first_output);
    const int64_t first_row = task % row_blocks * block_rows;
    const int64_t rows = std::min(block_rows, args.rows - first_row);
    const float** in = scratch.in.get(rows);
    float** out = scratch.task_out.get(rows);
    const uint8_t** prepared_in = scratch.prepared.get(rows);
    for (int64_t m = 0; m < rows; ++m) {
      const int64_t source = (first_row + m) * args.groups + group;
      in[m] = args.in + source * weight.cols;
      prepared_in[m] = prepared.is_tiled() ? prepared.tile(group, first_row + m) : prepared.row(source);
      out[m] = args.out + (first_row + m) * weight.rows + group * group_outputs + first_output;
    }
    multiply_rows(*context.kernels, scratch, weight, group * group_outputs + first_output, outputs,
                  {.in = in, .out = out, .rows = rows}, prepared.fit(weight) ? prepared_in : nullptr,
                  prepared.is_tiled());
    if (args.round_to_bf16)
      for (int64_t m = 0; m < rows; ++m) context.kernels->round_to_bf16(out[m], outputs);
  });
}

}  // namespace fathom::cpu
