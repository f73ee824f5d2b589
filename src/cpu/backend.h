// The fast backend: threads, tiles and vector kernels.
#pragma once

#include <memory>

#include "base/result.h"
#include "cpu/select.h"
#include "ops/backend.h"

namespace fathom {

struct CpuOptions {
  int thread_count = 0;  // the calling thread included; 0: one for each core this process may use
  CpuIsa isa = CpuIsa::kAuto;
};

/// A backend on the cores of this machine. Its memory is plain memory. A row's results are the same bits for
/// every number of rows and threads; they differ between instruction sets in the last places.
/// Working memory grows to what the largest call needs and is then kept, so repeated steps allocate nothing.
/// Errors: kUnsupported for an instruction set the machine lacks, kInvalidArgument for a bad thread count.
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options);

}  // namespace fathom
