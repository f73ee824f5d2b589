#include "cpu/testing.h"

namespace fathom::cpu_testing {
namespace {

TEST(CpuSelect, NamesAreReadBack) {
  for (CpuIsa isa : {CpuIsa::kAuto, CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAmx,
                     CpuIsa::kNeon, CpuIsa::kNeonDot})
    EXPECT_EQ(parse_cpu_isa(cpu_isa_name(isa)).value(), isa);
  const auto bad = parse_cpu_isa("sse9");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(bad.error().message.find("sse9"), std::string::npos);
}

TEST(CpuSelect, PortableIsAlwaysThereAndAutoTakesTheBest) {
  const std::vector<CpuIsa> available = available_cpu_isas();
  ASSERT_FALSE(available.empty());
  EXPECT_EQ(available.back(), CpuIsa::kPortable);
  const std::string best = fmt::format("cpu {}, 2 threads", cpu_isa_name(available.front()));
  EXPECT_EQ(backend_of(CpuIsa::kAuto, 2)->description(), best);
  EXPECT_EQ(backend_of(CpuIsa::kPortable, 1)->description(), "cpu portable, 1 thread");
}

TEST(CpuSelect, WhatTheMachineLacksIsRefused) {
  const std::vector<CpuIsa> available = available_cpu_isas();
  for (CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAmx, CpuIsa::kNeon, CpuIsa::kNeonDot}) {
    if (std::find(available.begin(), available.end(), isa) != available.end()) continue;
    const auto backend = make_cpu_backend({.thread_count = 1, .isa = isa});
    ASSERT_FALSE(backend.ok());
    EXPECT_EQ(backend.error().code, ErrorCode::kUnsupported);
  }
  EXPECT_EQ(make_cpu_backend({.thread_count = -1, .isa = CpuIsa::kAuto}).error().code,
            ErrorCode::kInvalidArgument);
}

TEST(CpuSelect, MemoryIsAlignedAndCopied) {
  const std::unique_ptr<Backend> backend = backend_of(CpuIsa::kAuto, 1);
  void* memory = backend->allocate(100);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
  const int sent = 12345;
  int received = 0;
  backend->upload(memory, &sent, sizeof sent);
  backend->download(&received, memory, sizeof received);
  EXPECT_EQ(received, sent);
  backend->release(memory);
}

}  // namespace
}  // namespace fathom::cpu_testing
