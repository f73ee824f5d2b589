#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace fathom {
namespace {

Pack open_golden(const std::string& name) {
  Result<Pack> pack = open_pack(FATHOM_SOURCE_DIR "/tests/data/golden/" + name);
  FATHOM_CHECK(pack.ok(), "{}", pack.error().message);
  return std::move(pack).value();
}

TEST(MemoryPlan, GroupsTensorsByName) {
  using Group = WeightGroups;
  EXPECT_EQ(weight_group("embed.weight"), &Group::embedding_bytes);
  EXPECT_EQ(weight_group("head.weight"), &Group::embedding_bytes);
  EXPECT_EQ(weight_group("norm.weight"), &Group::dense_bytes);
  EXPECT_EQ(weight_group("layers.3.attn.wq_a.scale"), &Group::dense_bytes);
  EXPECT_EQ(weight_group("layers.3.ffn.shared_experts.w1.weight"), &Group::dense_bytes);
  EXPECT_EQ(weight_group("layers.3.ffn.experts.17.w1.weight"), &Group::expert_bytes);
  EXPECT_EQ(weight_group("layers.1.engram.embed.weight"), &Group::engram_disk_bytes);
  EXPECT_EQ(weight_group("layers.1.engram.wkv.weight"), &Group::engram_projection_bytes);
  EXPECT_EQ(weight_group("mtp.0.ffn.experts.1.w2.weight"), &Group::draft_bytes);
  EXPECT_EQ(weight_group("vision.norm.weight"), &Group::vision_bytes);
  EXPECT_EQ(weight_group("image_start"), &Group::vision_bytes);
  EXPECT_EQ(weight_group("something"), &Group::other_bytes);
}

TEST(MemoryPlan, WeighsAPackToTheByte) {
  const WeightGroups groups = weigh_pack(open_golden("g3_candidate_engram"));
  EXPECT_EQ(groups.embedding_bytes, 2 * 320 * 128 * 2);
  // 4 experts in each of 6 layers: three matrices of 64 x 128 values, 4 bits and a scale byte for 32.
  const int64_t expert = 3 * (64 * 128 / 2 + 64 * 128 / 32);
  EXPECT_EQ(groups.expert_bytes % (6 * expert), 0);
  EXPECT_GT(groups.engram_disk_bytes, 0);
  EXPECT_GT(groups.engram_projection_bytes, 0);
  EXPECT_EQ(groups.other_bytes, 0);
}

// As in docs/model/backbone.md.
ModelConfig real_shape() {
  ModelConfig config;
  config.num_layers = 40;
  config.hidden_size = 5120;
  config.hc_mult = 4;
  config.head_dim = 512;
  config.index_head_dim = 128;
  config.sliding_window = 128;
  config.compress_ratios.assign(40, 1);
  for (int layer = 0; layer < 20; ++layer)
    config.compress_ratios[static_cast<size_t>(layer)] = layer < 2 ? 0 : 2;
  config.kv_source_layer_ids = {2, 8, 14, 20};
  config.index_source_layer_ids = {2, 8, 14, 20, 24, 28, 32, 36};
  config.max_position_embeddings = 1048576;
  config.vocab_size = 129280;
  return config;
}

TEST(MemoryPlan, CountsTheRealShapeAsTheSpecificationDoes) {
  // 890 bytes a token of compressed rows and index keys, 528 a row and layer of rings.
  const ModelConfig config = real_shape();
  const int64_t context = 131072;
  const MemoryPlan plan = plan_memory(
      config, {}, {.context_tokens = context, .sessions = 2, .rewind_tokens = 0}, int64_t{1} << 40);
  EXPECT_EQ(plan.rows_bytes, 2 * 890 * context);
  EXPECT_NEAR(static_cast<double>(plan.rings_bytes), 2.0 * 40 * 128 * 528, 200000);
  EXPECT_EQ(plan.tail_bytes, int64_t{2} * 2541 * (4 * 5120 + 4) * 4);
  EXPECT_TRUE(plan.fits());
}

// docs/scheduler.md
TEST(MemoryPlan, ThePagesFiguresOfTheCache) {
  const ModelConfig config = real_shape();
  const StateShape shape = make_state_shape(config, Numerics::kOfficial, 32);
  const int64_t logits = int64_t{config.vocab_size} * 4, tokens = 131072;
  EXPECT_EQ(shape.rows_bytes(0, tokens) + tokens * 4, 898 * tokens);
  EXPECT_EQ(shape.windows_bytes(), 3'936'584);
  EXPECT_EQ(logits, 517'120);
  EXPECT_EQ(898 * tokens + shape.windows_bytes() + logits, 122'156'360);
  EXPECT_EQ((shape.windows_bytes() + 897) / 898, 4384);
  EXPECT_EQ(shape.tail_rows, 2573);
  int64_t replayed = 0;  // rows of one layer
  for (int above = 0; above < 20; ++above) replayed += shape.ring_slots + (shape.window - 1) * above;
  EXPECT_EQ(replayed / 40, 683);
  EXPECT_EQ((replayed + 19) / 20, 1367);
  EXPECT_EQ((shape.tail_bytes(tokens) + 500'000) / 1'000'000, 211);
}

TEST(MemoryPlan, FindsTheLargestContextThatFits) {
  const Pack pack = open_golden("g2_select");
  MemoryPlanOptions options{.context_tokens = 114};
  const MemoryPlan ample = plan_memory(pack, options, int64_t{1} << 40);
  EXPECT_TRUE(ample.fits());
  EXPECT_EQ(ample.largest_context_tokens, 114);
  EXPECT_NE(ample.report().find("114 tokens, all the model was made for."), std::string::npos)
      << ample.report();

  options.context_tokens = 60;
  const int64_t for_60 = plan_memory(pack, options, 1).total_bytes();
  options.context_tokens = 114;
  const MemoryPlan tight = plan_memory(pack, options, for_60);
  EXPECT_FALSE(tight.fits());
  EXPECT_GE(tight.largest_context_tokens, 60);
  EXPECT_LT(tight.largest_context_tokens, 62);  // rows of two tokens: 61 needs no more than 60
  EXPECT_NE(tight.report().find("does not fit"), std::string::npos);
  EXPECT_NE(tight.report().find(fmt::format("at most {} tokens", tight.largest_context_tokens)),
            std::string::npos);
  options.context_tokens = tight.largest_context_tokens;
  EXPECT_TRUE(plan_memory(pack, options, for_60).fits());

  const MemoryPlan hopeless = plan_memory(pack, options, 1000);
  EXPECT_EQ(hopeless.largest_context_tokens, 0);
  EXPECT_NE(hopeless.report().find("No context fits"), std::string::npos) << hopeless.report();
}

TEST(MemoryPlan, AdvisesFewerSessions) {
  const Pack pack = open_golden("g2_select");
  MemoryPlanOptions options{.context_tokens = 100, .checkpoint_bytes = 10 << 20};
  const int64_t one = plan_memory(pack, options, 1).total_bytes();
  options.sessions = 50;
  const MemoryPlan plan = plan_memory(pack, options, one + (1 << 20));
  EXPECT_EQ(plan.largest_context_tokens, 0);
  EXPECT_NE(plan.report().find("Fewer sessions would fit"), std::string::npos) << plan.report();
}

TEST(MemoryPlan, CountsTheCachesOfAScheduler) {
  const Pack pack = open_golden("g2_select");
  MemoryPlanOptions options{.context_tokens = 100, .sessions = 3};
  const MemoryPlan bare = plan_memory(pack, options, int64_t{1} << 40);
  options.is_scheduler = true;
  options.cache_bytes = 5 << 20;
  const MemoryPlan plan = plan_memory(pack, options, int64_t{1} << 40);
  EXPECT_EQ(plan.total_bytes() - bare.total_bytes(), (5 << 20) + 320 * (2 * 16 + 512 * 4));
  EXPECT_NE(plan.report().find("prefix cache"), std::string::npos);
  options.disk_queue_bytes = 1 << 20;
  const MemoryPlan with_disk = plan_memory(pack, options, plan.total_bytes());
  EXPECT_EQ(with_disk.disk_bytes, (1 << 20) + with_disk.kv_bytes());
  EXPECT_FALSE(with_disk.fits());
}

TEST(AvailableMemory, IsPositiveHere) { EXPECT_GT(available_memory_bytes(), int64_t{1} << 20); }

TEST(AvailableMemory, ObeysControlGroupsAlongThePath) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "available_memory";
  std::filesystem::remove_all(root);
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  write("proc/meminfo", "MemTotal:       9000 kB\nMemFree:  10 kB\nMemAvailable:   5000 kB\n");
  EXPECT_EQ(available_memory_bytes(root.string()), 5000 * 1024);
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  write("sys/fs/cgroup/outer/inner/memory.current", "1000\n");
  EXPECT_EQ(available_memory_bytes(root.string()), 5000 * 1024);
  write("sys/fs/cgroup/outer/memory.max", "3000000\n");
  write("sys/fs/cgroup/outer/memory.current", "2000000\n");
  EXPECT_EQ(available_memory_bytes(root.string()), 1000000);
  write("sys/fs/cgroup/outer/memory.stat", "anon 7\nactive_file 100\ninactive_file 300000\n");
  EXPECT_EQ(available_memory_bytes(root.string()), 1300100);
  write("proc/self/cgroup", "4:cpu,cpuacct:/\n3:memory:/job\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2500000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "500000\n");
  EXPECT_EQ(available_memory_bytes(root.string()), 2000000);
  std::filesystem::remove_all(root);
}

TEST(FormatBytes, UsesBinaryUnits) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(int64_t{151} << 30), "151.0 GiB");
}

}  // namespace
}  // namespace fathom
