#include "measure/pack_hash.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/sha256.h"

namespace fathom::measure {
namespace {

namespace fs = std::filesystem;

std::string sha_of(const std::string& text) { return hex_string(sha256(std::as_bytes(std::span(text)))); }

class PackHashTest : public ::testing::Test {
 protected:
  PackHashTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "pack");
    cache_ = folder_ / "cache" / "hashes.json";
  }
  ~PackHashTest() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string hash(const std::string& name) {
    read_bytes_ = 0;
    const Result<std::string> result = pack_sha256(
        folder_ / name, cache_, [&](int64_t done_bytes, int64_t) { return read_bytes_ = done_bytes, true; });
    return result.ok() ? *result : result.error().message;
  }

  fs::path folder_ = fs::temp_directory_path() / fmt::format("fathom-pack-hash-{}", getpid());
  std::string cache_;
  int64_t read_bytes_ = 0;
};

TEST_F(PackHashTest, AFileHasItsOwnAndAFolderThatOfItsListing) {
  write("model.gguf", "abc");
  EXPECT_EQ(hash("model.gguf"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  write("pack/b.safetensors", "two");
  write("pack/a.safetensors", "one");
  write("pack/config.json", "{}");
  write("pack/README.md", "no part of it");
  EXPECT_EQ(hash("pack"), sha_of(sha_of("one") + "  a.safetensors\n" + sha_of("two") + "  b.safetensors\n" +
                                 sha_of("{}") + "  config.json\n"));
}

TEST_F(PackHashTest, ASplitFileIsAllOfItsShards) {
  write("m-00001-of-00002.gguf", "one");
  write("m-00002-of-00002.gguf", "two");
  write("m-00001-of-00003.gguf", "of another set");
  write("n-00002-of-00002.gguf", "of another name");
  EXPECT_EQ(hash("m-00001-of-00002.gguf"),
            sha_of(sha_of("one") + "  m-00001-of-00002.gguf\n" + sha_of("two") + "  m-00002-of-00002.gguf\n"));
}

TEST_F(PackHashTest, IsKeptUntilTheFileChanges) {
  write("model.gguf", "abc");
  const std::string first = hash("model.gguf");
  EXPECT_EQ(read_bytes_, 3);
  EXPECT_EQ(hash("model.gguf"), first);
  EXPECT_EQ(read_bytes_, 0);
  fs::last_write_time(folder_ / "model.gguf", fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(hash("model.gguf"), first);
  EXPECT_EQ(read_bytes_, 3);
  write("model.gguf", "abcd");
  EXPECT_EQ(hash("model.gguf"), sha_of("abcd"));
  std::ofstream(cache_) << "{ damaged";
  EXPECT_EQ(hash("model.gguf"), sha_of("abcd"));
}

TEST_F(PackHashTest, MissingAndEmptyPacksAreErrorsThatNameThem) {
  EXPECT_NE(hash("nothing.gguf").find("nothing.gguf"), std::string::npos);
  EXPECT_NE(hash("pack").find("expected files of a pack, found none"), std::string::npos);
  write("model.gguf", "abc");
  const Result<std::string> ended =
      pack_sha256(folder_ / "model.gguf", "", [](int64_t, int64_t) { return false; });
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace fathom::measure
