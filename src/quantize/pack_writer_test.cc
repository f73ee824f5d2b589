#include "quantize/pack_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "format/test_files.h"

namespace fathom {
namespace {

// Two tensors in one GGUF of the ds4 dialect.
PackPlan small_plan() {
  PackPlan plan{.dialect = PackDialect::kDs4Gguf};
  for (const char* name : {"first", "second"}) {
    PlannedUnit unit{.encoding = DType::kF32, .values = plan.stored.size(), .scales = plan.stored.size()};
    plan.stored.push_back({name, DType::kF32, {4}, 16});
    plan.units.push_back(unit);
  }
  return plan;
}

PackLayout small_layout(const PackPlan& plan, const std::string& path) {
  return *layout_gguf(plan, path, 0,
                      [](GgufWriter& writer) { writer.add_string("general.architecture", "x"); });
}

Result<std::unique_ptr<PackWriter>> open(const PackPlan& plan, const std::string& path,
                                         PackWriterOptions options = {}) {
  options.journal_interval_bytes = 1;
  return PackWriter::open(plan, small_layout(plan, path), options);
}

void write(PackWriter& writer, size_t stored, const std::string& text) {
  ASSERT_TRUE(writer.append(stored, as_span(text)).ok());
  ASSERT_TRUE(writer.finish(stored).ok());
}

const std::string kFirst = "0123456789abcdef", kSecond = "fedcba9876543210";

std::string whole_file(const TemporaryFolder& folder) {
  const PackPlan plan = small_plan();
  const std::string path = folder.file("whole.gguf");
  auto writer = open(plan, path);
  EXPECT_TRUE(writer.ok()) << writer.error().message;
  write(**writer, 0, kFirst);
  write(**writer, 1, kSecond);
  const auto committed = (*writer)->commit();
  EXPECT_TRUE(committed.ok()) << committed.error().message;
  return read_bytes(path);
}

TEST(PackWriter, WritesTensorsAtTheirPlacesAndListsChecksums) {
  const TemporaryFolder folder;
  const std::string bytes = whole_file(folder);
  ASSERT_EQ(bytes.size(), 3 * 16384u);
  EXPECT_EQ(bytes.substr(16384, 16), kFirst);
  EXPECT_EQ(bytes.substr(32768, 16), kSecond);
  EXPECT_EQ(bytes.find_first_not_of('\0', 32768 + 16), std::string::npos);
  EXPECT_EQ(read_bytes(folder.file("whole.gguf.sha256")), hex_string(sha256(as_span(kFirst))) + "  first\n" +
                                                              hex_string(sha256(as_span(kSecond))) +
                                                              "  second\n");
  EXPECT_FALSE(file_exists(folder.file("whole.gguf.part")));
  EXPECT_FALSE(file_exists(folder.file("whole.gguf.journal")));
}

TEST(PackWriter, GoesOnWithWhatWasFinished) {
  const TemporaryFolder folder;
  const std::string whole = whole_file(folder), path = folder.file("resumed.gguf");
  const PackPlan plan = small_plan();
  {
    auto writer = open(plan, path);
    ASSERT_TRUE(writer.ok());
    write(**writer, 0, kFirst);
    ASSERT_TRUE((*writer)->append(1, as_span("garbage!")).ok());
  }
  EXPECT_FALSE(file_exists(path));
  EXPECT_TRUE(file_exists(path + ".part"));
  // What a crash may leave of the last line.
  write_bytes(path + ".journal", read_bytes(path + ".journal") + "0123 1 sec");
  auto writer = open(plan, path);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_TRUE((*writer)->is_done(0));
  EXPECT_FALSE((*writer)->is_done(1));
  EXPECT_EQ((*writer)->resumed_bytes(), 16u);
  EXPECT_EQ((*writer)->commit().error().message, path + ": tensor second is missing");
  write(**writer, 1, kSecond);
  ASSERT_TRUE((*writer)->commit().ok());
  EXPECT_EQ(read_bytes(path), whole);
  EXPECT_EQ(read_bytes(path + ".sha256"), read_bytes(folder.file("whole.gguf.sha256")));
}

TEST(PackWriter, RefusesTheRestOfAnotherRun) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.gguf");
  const PackPlan plan = small_plan();
  {
    ASSERT_TRUE(open(plan, path, {.identity = "one"}).ok());
  }
  const auto other = open(plan, path, {.identity = "two"});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(
      other.error().message,
      path + ".journal: an unfinished run of other input or options left it; --restart discards that run");
  auto fresh = open(plan, path, {.identity = "two", .restart = true});
  ASSERT_TRUE(fresh.ok()) << fresh.error().message;
  const auto second = open(plan, path, {.identity = "two"});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().message, path + ".journal: another run is writing this pack");
}

TEST(PackWriter, NeverReplacesAPack) {
  const TemporaryFolder folder;
  whole_file(folder);
  const PackPlan plan = small_plan();
  const auto again = open(plan, folder.file("whole.gguf"));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().message, folder.file("whole.gguf") + ": exists already");
  EXPECT_FALSE(file_exists(folder.file("whole.gguf.journal")));
}

TEST(PackWriter, SaysThatTheDiskIsFull) {
  const TemporaryFolder folder;
  const std::string path = folder.file("full.gguf");
  const PackPlan plan = small_plan();
  {
    ASSERT_TRUE(open(plan, path).ok());
  }
  ASSERT_EQ(::unlink((path + ".part").c_str()), 0);
  ASSERT_EQ(::symlink("/dev/full", (path + ".part").c_str()), 0);
  const auto writer = open(plan, path);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(
      writer.error().message,
      path +
          ".part: the disk is full; what is finished is kept, the same command goes on once there is room");
  EXPECT_FALSE(file_exists(path));
}

TEST(PackWriter, AsksForRoomBeforeItBegins) {
  const TemporaryFolder folder;
  PackPlan plan = small_plan();
  plan.stored[1] = {"second", DType::kF32, {int64_t{1} << 50}, uint64_t{1} << 52};
  const auto writer = open(plan, folder.file("huge.gguf"));
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, ErrorCode::kIo);
  EXPECT_NE(writer.error().message.find("are still to be written, the disk has"), std::string::npos)
      << writer.error().message;
}

}  // namespace
}  // namespace fathom
