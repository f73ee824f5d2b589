#include "tensor/formats/codebooks.h"

#include <gtest/gtest.h>

#include <string>

#include "base/sha256.h"

namespace fathom {
namespace {

template <class Table>
std::string hash_of(const Table& table) {
  return hex_string(sha256(std::as_bytes(std::span(&table, 1))));
}

TEST(Codebooks, Hashes) {
  EXPECT_EQ(hash_of(kIq2XxsGrid), "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54");
  EXPECT_EQ(hash_of(kIq2XsGrid), "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de");
  EXPECT_EQ(hash_of(kIq2SGrid), "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88");
  EXPECT_EQ(hash_of(kIq3XxsGrid), "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d");
  EXPECT_EQ(hash_of(kIq3SGrid), "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f");
  EXPECT_EQ(hash_of(kIq1Grid), "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a");
  EXPECT_EQ(hash_of(kIqEvenSigns), "a76742a603f8beca5212ecce0f1f02f11a4887fd2f7c8b15aca0ea3eb3380c31");
}

TEST(Codebooks, SignsAreEven) {
  EXPECT_EQ(kIqEvenSigns.value[0], 0);
  EXPECT_EQ(kIqEvenSigns.value[1], 0x81);
  EXPECT_EQ(kIqEvenSigns.value[3], 0x03);
  EXPECT_EQ(kIqEvenSigns.value[127], 0xFF);
}

}  // namespace
}  // namespace fathom
