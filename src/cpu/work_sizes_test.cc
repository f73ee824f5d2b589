#include "cpu/work_sizes.h"

#include <gtest/gtest.h>

#include "cpu/testing.h"

// Address checkers end the program where an allocation would fail.
#if defined(__SANITIZE_ADDRESS__)
#define FATHOM_TEST_CHECKS_ADDRESSES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FATHOM_TEST_CHECKS_ADDRESSES 1
#endif
#endif

namespace fathom::cpu_testing {
namespace {

WorkShape shape_of(int64_t rows, int64_t context_tokens) {
  return {.rows = rows, .context_tokens = context_tokens, .streams = 4, .dim = 512, .widest_input = 1024,
          .heads = 8, .head_dim = 64, .output_groups = 2, .window = 64, .top_k = 64, .index_heads = 4,
          .index_dim = 32, .candidate_block = 8, .candidate_blocks = 16, .experts = 16, .experts_per_token = 2,
          .inter = 256};
}

TEST(WorkSizes, ReservesWhatItSays) {
  const auto backend = backend_of(CpuIsa::kAuto, 3);
  EXPECT_EQ(cpu_working_bytes_held(*backend), 0);
  ASSERT_TRUE(backend->reserve(shape_of(64, 1000)).ok());
  EXPECT_EQ(cpu_working_bytes_held(*backend), backend->working_bytes(shape_of(64, 1000)));
  // A smaller shape takes nothing more, a longer context does.
  ASSERT_TRUE(backend->reserve(shape_of(10, 500)).ok());
  EXPECT_EQ(cpu_working_bytes_held(*backend), backend->working_bytes(shape_of(64, 1000)));
  ASSERT_TRUE(backend->reserve(shape_of(64, 9000)).ok());
  EXPECT_EQ(cpu_working_bytes_held(*backend), backend->working_bytes(shape_of(64, 9000)));
  EXPECT_GT(backend->working_bytes(shape_of(64, 9000)), backend->working_bytes(shape_of(64, 1000)));
}

#if !defined(FATHOM_TEST_CHECKS_ADDRESSES)
TEST(WorkSizes, MemoryThatIsNotThereIsAnError) {
  const auto backend = backend_of(CpuIsa::kAuto, 1);
  const WorkShape shape = shape_of(int64_t{1} << 40, 1000);
  const auto refused = backend->reserve(shape);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNoMemory);
  EXPECT_EQ(refused.error().message,
            fmt::format("cannot allocate {} bytes of working memory for steps of {} rows",
                        backend->working_bytes(shape), shape.rows));
  // What is there still serves.
  EXPECT_TRUE(backend->reserve(shape_of(8, 100)).ok());
}
#endif

}  // namespace
}  // namespace fathom::cpu_testing
