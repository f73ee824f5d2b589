#include <algorithm>

#include "base/check.h"
#include "cpu/matmul.h"

namespace fathom::cpu {

// Tasks are (block of weight rows) x (block of activation rows). With few rows a task takes more weight rows,
// so that it is worth its start; with few weight rows, fewer activation rows, so that every thread has some.
void grouped_linear(const Context& context, const GroupedLinearArgs& args) {
  const WeightMatrix& weight = *args.weight;
  const int64_t group_outputs = weight.rows / args.groups;
  FATHOM_CHECK(group_outputs * args.groups == weight.rows, "{} rows in {} groups", weight.rows, args.groups);
  if (args.rows == 0 || weight.rows == 0) return;

  constexpr int64_t kWorkOfTask = 192 * 1024;
  constexpr int64_t kFewestRows = 12;
  int64_t block_rows = std::min(args.rows, activation_block_rows(weight.cols));
  const int64_t most_panels = (weight.rows + kPanelRows - 1) / kPanelRows;
  while (block_rows >= 2 * kFewestRows &&
         most_panels * ((args.rows + block_rows - 1) / block_rows) < 2 * context.thread_count())
    block_rows = (block_rows + 1) / 2;
  const int64_t row_blocks = (args.rows + block_rows - 1) / block_rows;
  const int64_t fair = most_panels * row_blocks / (4 * context.thread_count());
  int64_t panels = std::clamp<int64_t>(kWorkOfTask / (block_rows * weight.cols * kPanelRows), 1,
                                       std::max<int64_t>(1, fair));
  if (panels > 1) panels = panels / 2 * 2;  // tiles of FP8 have 32 rows
  const int64_t block_outputs = std::min(panels * kPanelRows, group_outputs);
  const int64_t output_blocks = (group_outputs + block_outputs - 1) / block_outputs;
  const int64_t tasks = args.groups * output_blocks * row_blocks;
  PreparedRows prepared;
  if (args.inputs_are_bf16)
    prepared = prepare_rows(context, weight, args.in, args.rows * args.groups, *context.prepared);

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
      prepared_in[m] = prepared.row(source);
      out[m] = args.out + (first_row + m) * weight.rows + group * group_outputs + first_output;
    }
    multiply_rows(*context.kernels, scratch, weight, group * group_outputs + first_output, outputs,
                  {.in = in, .out = out, .rows = rows}, prepared.fit(weight) ? prepared_in : nullptr);
    if (args.round_to_bf16)
      for (int64_t m = 0; m < rows; ++m) context.kernels->round_to_bf16(out[m], outputs);
  });
}

}  // namespace fathom::cpu
