#include "quantize/reference_logits.h"

#include <gtest/gtest.h>

#include <cmath>

#include "format/test_files.h"
#include "quantize/quality.h"

namespace fathom {
namespace {

constexpr int kVocab = 257, kRows = 5;

std::vector<float> row(int index) {
  std::vector<float> logits;
  for (int id = 0; id < kVocab; ++id)
    logits.push_back(8 * std::sin(static_cast<float>(id * (index + 1))) + static_cast<float>(index));
  logits[3] = -500;  // far below the range of the codes
  return logits;
}

ReferenceHeader header() {
  ReferenceHeader header{.vocab_size = kVocab, .rows = kRows};
  header.model.fill(7);
  header.text.fill(9);
  return header;
}

void write(const std::string& path) {
  auto writer = ReferenceWriter::create(path, header());
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  for (int index = 0; index < kRows; ++index) ASSERT_TRUE(writer->add(row(index)).ok());
  EXPECT_FALSE(writer->add(row(0)).ok());
  ASSERT_TRUE(writer->finish().ok());
}

TEST(ReferenceLogits, ComeBackWithinHalfAStep) {
  const TemporaryFolder folder;
  write(folder.file("a.ref"));
  const auto reader = ReferenceReader::open(folder.file("a.ref"));
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_EQ(reader->header().rows, kRows);
  EXPECT_EQ(reader->header().vocab_size, kVocab);
  EXPECT_EQ(reader->header().model, header().model);
  EXPECT_EQ(reader->header().text, header().text);
  std::vector<float> found(kVocab);
  for (int index = 0; index < kRows; ++index) {
    const std::vector<float> logits = row(index);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    reader->read(index, found);
    for (size_t id = 0; id < logits.size(); ++id) {
      if (id != 3) {
        EXPECT_NEAR(found[id], logits[id] - std::log(sum), 3.2e-4) << index << " " << id;
      }
    }
    EXPECT_NEAR(found[3], *std::max_element(found.begin(), found.end()) - 40, 1e-3);
    EXPECT_LT(judge_token(logits, found, 0).divergence, 5e-8);
  }
}

TEST(ReferenceLogits, RefusesDamage) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.ref");
  write(path);
  const std::string good = read_bytes(path);
  const auto says = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    const auto reader = ReferenceReader::open(path);
    return reader.ok() ? std::string("ok") : reader.error().message;
  };
  for (const size_t place : {size_t{100}, good.size() / 2, good.size() - 1}) {
    std::string damaged = good;
    damaged[place] = static_cast<char>(damaged[place] ^ 16);
    EXPECT_NE(says(damaged).find("checksum"), std::string::npos) << place;
  }
  EXPECT_NE(says(good.substr(0, good.size() - 100)).find("cut off"), std::string::npos);
  EXPECT_NE(says(good.substr(0, 50)).find("expected a file of reference logits"), std::string::npos);
  EXPECT_NE(says("GGUF" + good.substr(4)).find("expected a file of reference logits"), std::string::npos);
  EXPECT_EQ(says(good), "ok");
}

TEST(ReferenceLogits, AppearsWholeOrNotAtAll) {
  const TemporaryFolder folder;
  {
    auto writer = ReferenceWriter::create(folder.file("a.ref"), header());
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->add(row(0)).ok());
    EXPECT_FALSE(writer->finish().ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace fathom
