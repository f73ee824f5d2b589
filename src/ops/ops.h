// The operations of the forward pass: one parameter struct each.
//
// Tensors are float32, row-major and contiguous unless a comment says otherwise, in memory of the backend
// (Backend::allocate). "rows" are the rows of a step: whatever tokens are evaluated together, of one or many
// sequences. No operation mixes rows: the arithmetic of a row depends on that row, on the weights and on its
// own sequence's caches, never on how many other rows are there.
//
// With Numerics::kOfficial results are rounded to bfloat16 where the published model holds bfloat16 tensors
// (docs/model/backbone.md names every point); with kExact nothing is rounded.
#pragma once

#include "ops/attention_ops.h"
#include "ops/dense_ops.h"
#include "ops/expert_ops.h"
#include "ops/numerics.h"
