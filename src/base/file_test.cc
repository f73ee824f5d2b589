#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace fathom {
namespace {

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              fmt::format("fathom_file_test_{}_{}", test->name(), ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::string write(const char* name, std::string_view text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  size_t file_count() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::filesystem::path folder_;
};

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(FileTest, MapsWholeFiles) {
  auto mapped = MappedFile::open(write("a", "hello"));
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(text_of(mapped->bytes()), "hello");
  MappedFile moved = std::move(mapped).value();
  EXPECT_EQ(text_of(moved.bytes()), "hello");
  EXPECT_EQ(moved.path(), path("a"));
  auto other = MappedFile::open(write("b", "other"));
  ASSERT_TRUE(other.ok());
  moved = std::move(other).value();
  EXPECT_EQ(text_of(moved.bytes()), "other");
}

TEST_F(FileTest, MapsAnEmptyFile) {
  auto mapped = MappedFile::open(write("empty", ""));
  ASSERT_TRUE(mapped.ok());
  EXPECT_TRUE(mapped->bytes().empty());
}

TEST_F(FileTest, ErrorsNameThePath) {
  const auto missing = MappedFile::open(path("missing"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find(path("missing")), std::string::npos);
  const auto folder = RandomAccessFile::open(folder_.string());
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::kInvalidArgument);
  // A pipe without a writer is refused, not waited for.
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(path("pipe")).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(read_text_file(path("pipe"), 10).error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(file_exists(path("missing")));
  EXPECT_EQ(file_info(path("missing")).error().code, ErrorCode::kNotFound);
}

TEST_F(FileTest, ReadsByPosition) {
  auto file = RandomAccessFile::open(write("a", "0123456789"));
  ASSERT_TRUE(file.ok());
  file->advise_random();
  EXPECT_EQ(file->size_bytes(), 10u);
  std::byte buffer[4];
  ASSERT_TRUE(file->read_at(3, buffer).ok());
  EXPECT_EQ(text_of(buffer), "3456");
  ASSERT_TRUE(file->read_at(6, buffer).ok());
  EXPECT_EQ(text_of(buffer), "6789");
  ASSERT_TRUE(file->read_at(100, {}).ok());
  const auto result = file->read_at(8, buffer);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kIo);
  EXPECT_NE(result.error().message.find("4 bytes at offset 8"), std::string::npos) << result.error().message;
  EXPECT_FALSE(file->read_at(UINT64_MAX, buffer).ok());
}

TEST_F(FileTest, ReadTextFileHasALimit) {
  const std::string name = write("a", "abc");
  EXPECT_EQ(read_text_file(name, 3).value(), "abc");
  EXPECT_EQ(read_text_file(name, 2).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(FileTest, SeesHoles) {
  write("sparse", "x");
  std::filesystem::resize_file(path("sparse"), 1 << 20);
  const auto info = file_info(path("sparse"));
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->size_bytes, 1u << 20);
  EXPECT_LT(info->allocated_bytes, 1u << 20);
  EXPECT_FALSE(info->is_directory);
  EXPECT_TRUE(file_info(folder_.string())->is_directory);
}

TEST_F(FileTest, WritesWholeOrNotAtAll) {
  const std::string_view pieces[2] = {"new ", "text"};
  const std::span<const std::byte> parts[2] = {std::as_bytes(std::span(pieces[0])),
                                               std::as_bytes(std::span(pieces[1]))};
  write("a", "old");
  ASSERT_TRUE(write_file_atomically(path("a"), parts).ok());
  EXPECT_EQ(read_text_file(path("a"), 100).value(), "new text");
  EXPECT_EQ(file_count(), 1u);

  // A folder cannot be replaced by a file: the rename fails and nothing is left behind.
  std::filesystem::create_directories(folder_ / "taken" / "inside");
  const auto result = write_file_atomically(path("taken"), parts);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(file_count(), 2u);
  EXPECT_FALSE(write_file_atomically(path("no/such/folder"), parts).ok());
  // Neither a pipe nor what a link to a device leads to becomes a file.
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/null", path("link"));
  for (const char* name : {"pipe", "link"}) {
    const auto special = write_file_atomically(path(name), parts);
    ASSERT_FALSE(special.ok());
    EXPECT_NE(special.error().message.find("not a regular file"), std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
}

}  // namespace
}  // namespace fathom
