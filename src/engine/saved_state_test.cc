#include "engine/saved_state.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace fathom {
namespace {

SavedStateOwner owner() {
  SavedStateOwner owner{.vocab_size = 4, .context_tokens = 8, .state_bytes_max = 100};
  for (size_t index = 0; index < owner.fingerprint.size(); ++index)
    owner.fingerprint[index] = static_cast<uint8_t>(index * 7);
  return owner;
}

SavedState example() {
  SavedState saved{.tokens = {3, 0, 2}, .logits = {0.5f, -1, 2, 8}, .state = {}};
  for (int byte = 0; byte < 37; ++byte) saved.state.push_back(static_cast<std::byte>(byte * 5));
  return saved;
}

class SavedStateFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("saved_state_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "state").string();
    const auto written = write_saved_state(path_, owner(), example());
    ASSERT_TRUE(written.ok()) << written.error().message;
    std::ifstream file(path_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void rewrite(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  Error error_of(const SavedStateOwner& reader = owner()) {
    const auto saved = read_saved_state(path_, reader);
    EXPECT_FALSE(saved.ok());
    return saved.ok() ? Error{} : saved.error();
  }

  std::filesystem::path folder_;
  std::string path_;
  std::string bytes_;
};

TEST_F(SavedStateFile, ComesBackAsItWas) {
  EXPECT_EQ(bytes_.size(), 72u + 3 * 4 + 4 * 4 + 37 + 32);
  EXPECT_EQ(bytes_.substr(0, 8), "FTHMSTAT");
  const auto saved = read_saved_state(path_, owner());
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  EXPECT_EQ(saved->tokens, example().tokens);
  EXPECT_EQ(saved->logits, example().logits);
  EXPECT_EQ(saved->state, example().state);
}

TEST_F(SavedStateFile, RefusesEveryFlippedBit) {
  for (size_t position = 0; position < bytes_.size(); ++position) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes_;
      damaged[position] = static_cast<char>(damaged[position] ^ (1 << bit));
      const auto bytes = std::as_bytes(std::span(damaged));
      ASSERT_FALSE(parse_saved_state(bytes, "x", owner()).ok()) << position << " " << bit;
    }
  }
}

TEST_F(SavedStateFile, RefusesEveryOtherLength) {
  for (size_t length = 0; length < bytes_.size(); ++length) {
    const auto bytes = std::as_bytes(std::span(bytes_)).first(length);
    ASSERT_FALSE(parse_saved_state(bytes, "x", owner()).ok()) << length;
  }
  rewrite(bytes_.substr(0, 120));
  EXPECT_NE(error_of().message.find("truncated"), std::string::npos);
  rewrite(bytes_ + '\0');
  const Error error = error_of();
  EXPECT_EQ(error.code, ErrorCode::kBadPack);
  EXPECT_NE(error.message.find("expected 169 bytes, found 170"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find(path_), std::string::npos);
}

TEST_F(SavedStateFile, RefusesOtherOwners) {
  SavedStateOwner other = owner();
  other.fingerprint[31] ^= 1;
  EXPECT_NE(error_of(other).message.find("another model"), std::string::npos);
  other = owner();
  other.numerics = Numerics::kExact;
  EXPECT_NE(error_of(other).message.find("numerics"), std::string::npos);
  other = owner();
  other.vocab_size = 5;
  EXPECT_NE(error_of(other).message.find("4 logits, expected 5"), std::string::npos);
  other = owner();
  other.context_tokens = 2;
  EXPECT_EQ(error_of(other).code, ErrorCode::kContextFull);
  other = owner();
  other.state_bytes_max = 36;
  EXPECT_EQ(error_of(other).code, ErrorCode::kBadPack);
}

TEST_F(SavedStateFile, RefusesOtherVersionsAndFiles) {
  std::string other = bytes_;
  other[8] = 2;
  rewrite(other);
  EXPECT_NE(error_of().message.find("version 2, expected 1"), std::string::npos);
  other[0] = 'X';
  rewrite(other);
  EXPECT_NE(error_of().message.find("not a saved state"), std::string::npos);
  std::filesystem::remove(path_);
  EXPECT_EQ(error_of().code, ErrorCode::kNotFound);
}

TEST_F(SavedStateFile, HugeCountsAreRefusedBeforeAnythingIsAllocated) {
  for (const size_t field : {48u, 56u, 64u}) {
    for (const uint64_t count : {UINT64_MAX, uint64_t{1} << 62, uint64_t{1} << 40}) {
      std::string other = bytes_;
      std::memcpy(other.data() + field, &count, sizeof count);
      rewrite(other);
      EXPECT_EQ(error_of().code, ErrorCode::kBadPack);
    }
  }
}

TEST_F(SavedStateFile, RefusesTokensOutsideTheVocabulary) {
  SavedState saved = example();
  saved.tokens[1] = 4;
  ASSERT_TRUE(write_saved_state(path_, owner(), saved).ok());
  EXPECT_NE(error_of().message.find("token 4 at position 1, expected 0 to 3"), std::string::npos);
}

TEST_F(SavedStateFile, AFailedWriteLeavesTheOldFile) {
  EXPECT_FALSE(write_saved_state((folder_ / "none" / "state").string(), owner(), example()).ok());
  EXPECT_TRUE(read_saved_state(path_, owner()).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace fathom
