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
  bool pin = false;  // threads to cores, the calling one apart
};

/// A backend on the cores of this machine. Its memory is plain memory. A row's results are the same bits for
/// every number of rows and threads; they differ between instruction sets in the last places.
/// Working memory that was not reserved grows to what the largest call needs and is then kept.
/// Errors: kUnsupported for an instruction set the machine lacks, kInvalidArgument for a bad thread count,
/// or if threads cannot be pinned.
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options);

/// Of a backend that make_cpu_backend made: working memory it holds now. For tests of working_bytes.
int64_t cpu_working_bytes_held(const Backend& backend);

}  // namespace fathom
