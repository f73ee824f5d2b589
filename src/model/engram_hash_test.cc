#include "model/engram_hash.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/sha256.h"
#include "format/safetensors.h"

namespace fathom {
namespace {

EngramHashSpec release_spec() {
  return {.layer_ids = {1, 14}, .ngram_max = 4, .heads = 8, .rows_floor = 16000000,
          .compressed_vocab_size = 99092};
}

std::string digest(const std::vector<int64_t>& values) {
  return hex_string(sha256(std::as_bytes(std::span(values)))).substr(0, 8);
}

std::vector<int64_t> rows_of(const EngramLayerHash& hash, std::vector<int32_t> ids_back) {
  std::vector<int64_t> rows(hash.columns());
  engram_rows(hash, ids_back, rows);
  return rows;
}

TEST(EngramHash, DerivesTheConstantsOfTheRelease) {
  const auto layers = derive_engram_hash(release_spec());
  ASSERT_TRUE(layers.ok());
  ASSERT_EQ(layers->size(), 2u);
  EXPECT_EQ((*layers)[0].multipliers,
            (std::vector<int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ((*layers)[1].multipliers,
            (std::vector<int64_t>{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
  EXPECT_EQ((*layers)[0].rows, 384006168);
  EXPECT_EQ((*layers)[1].rows, 384016682);
  EXPECT_EQ((*layers)[0].primes.front(), 16000057);
  EXPECT_EQ((*layers)[1].primes.back(), 16000889);

  std::vector<int64_t> multipliers, primes, offsets;
  for (const EngramLayerHash& layer : *layers) {
    multipliers.insert(multipliers.end(), layer.multipliers.begin(), layer.multipliers.end());
    primes.insert(primes.end(), layer.primes.begin(), layer.primes.end());
    offsets.insert(offsets.end(), layer.offsets.begin(), layer.offsets.end());
  }
  EXPECT_EQ(digest(multipliers), "7345f44e");
  EXPECT_EQ(digest(primes), "ed542f58");
  EXPECT_EQ(digest(offsets), "edf22996");
}

// Published vector: compressed ids 0, 3, 15, hashed at the third position.
TEST(EngramHash, GivesThePublishedRows) {
  const auto layers = derive_engram_hash(release_spec());
  ASSERT_TRUE(layers.ok());
  EXPECT_EQ(rows_of((*layers)[0], {15, 3, 0, 2}),
            (std::vector<int64_t>{10394440,  25597646,  41525500,  56949077,  72088738,  87803199,
                                  103660714, 117890322, 133679554, 149048834, 164909235, 179450177,
                                  194623690, 210212541, 225598121, 241122337, 264857356, 275121728,
                                  291772318, 316098564, 326982803, 351309675, 366718203, 378263177}));
  EXPECT_EQ(rows_of((*layers)[1], {15, 3, 0, 2}),
            (std::vector<int64_t>{14784224,  31005239,  34470870,  63449341,  69938491,  90531711,
                                  100952646, 114166730, 131094349, 150341785, 173304480, 179798762,
                                  202529617, 215756271, 232472038, 248712503, 267471672, 277953512,
                                  294997123, 309159487, 329088915, 350071831, 354793593, 378402873}));
}

TEST(EngramHash, ALatchBlocksEverythingBehindADeadPosition) {
  EngramHistory history(4, 2);
  std::vector<int32_t> ids(4);
  history.gather(7, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{7, 2, 2, 2}));
  for (const int32_t id : {10, kEngramDead, 12}) history.push(id);
  history.gather(13, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{13, 12, 2, 2}));
  history.push(13);
  history.push(14);
  history.gather(15, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{15, 14, 13, 12}));
  history.clear();
  history.gather(15, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{15, 2, 2, 2}));
}

TEST(EngramHash, RefusesMeaninglessSpecs) {
  for (auto spoil : {+[](EngramHashSpec& spec) { spec.ngram_max = 1; },
                     +[](EngramHashSpec& spec) { spec.heads = 0; },
                     +[](EngramHashSpec& spec) { spec.rows_floor = 0; },
                     +[](EngramHashSpec& spec) { spec.compressed_vocab_size = 0; },
                     +[](EngramHashSpec& spec) { spec.layer_ids = {-1}; }}) {
    EngramHashSpec spec = release_spec();
    spoil(spec);
    EXPECT_FALSE(derive_engram_hash(spec).ok());
  }
  EXPECT_TRUE(derive_engram_hash({}).value().empty());
}

class Golden {
 public:
  explicit Golden(const std::string& name)
      : files_(open_safetensors(FATHOM_SOURCE_DIR "/tests/data/golden/" + name + "/golden.safetensors")) {}

  template <class T>
  std::vector<T> read(const std::string& name) const {
    const TensorEntry* tensor = files_.value().find("inputs/" + name);
    FATHOM_CHECK(tensor != nullptr, "golden tensor {}", name);
    std::vector<T> values(tensor->size_bytes / sizeof(T));
    std::memcpy(values.data(), tensor->data, tensor->size_bytes);
    return values;
  }
  std::vector<int32_t> read_if_present(const std::string& name) const {
    return files_.value().find("inputs/" + name) ? read<int32_t>(name) : std::vector<int32_t>{};
  }

 private:
  Result<TensorFiles> files_;
};

struct GoldenCase {
  const char* folder;
  EngramHashSpec spec;
};

class EngramGolden : public testing::TestWithParam<GoldenCase> {};

TEST_P(EngramGolden, ConstantsAndRowsOfEveryPosition) {
  const Golden golden(GetParam().folder);
  const auto layers = derive_engram_hash(GetParam().spec);
  ASSERT_TRUE(layers.ok());
  std::vector<int64_t> multipliers;
  std::vector<int32_t> primes, offsets;
  for (const EngramLayerHash& layer : *layers) {
    multipliers.insert(multipliers.end(), layer.multipliers.begin(), layer.multipliers.end());
    primes.insert(primes.end(), layer.primes.begin(), layer.primes.end());
    offsets.insert(offsets.end(), layer.offsets.begin(), layer.offsets.end());
  }
  EXPECT_EQ(multipliers, golden.read<int64_t>("engram_multipliers"));
  EXPECT_EQ(primes, golden.read<int32_t>("engram_primes"));
  EXPECT_EQ(offsets, golden.read<int32_t>("engram_offsets"));

  const std::vector<int32_t> map = golden.read<int32_t>("engram_token_map");
  const std::vector<int32_t> types = golden.read_if_present("token_types");
  std::vector<int32_t> tokens = golden.read<int32_t>("ids_prefill");
  std::vector<int32_t> expected = golden.read<int32_t>("engram_hash_prefill");
  for (const int32_t token : golden.read<int32_t>("ids_decode")) tokens.push_back(token);
  for (const int32_t row : golden.read<int32_t>("engram_hash_decode")) expected.push_back(row);

  const int ngram_max = GetParam().spec.ngram_max;
  EngramHistory history(ngram_max, map[2]);
  std::vector<int32_t> ids_back(ngram_max);
  size_t next = 0;
  for (size_t position = 0; position < tokens.size(); ++position) {
    const bool dead = position < types.size() && types[position] >= 0;
    const int32_t id = dead ? kEngramDead : map[tokens[position]];
    if (!dead) history.gather(id, ids_back);
    for (const EngramLayerHash& layer : *layers) {
      const std::vector<int32_t> wanted(expected.begin() + next, expected.begin() + next + layer.columns());
      next += layer.columns();
      if (dead) continue;
      const auto rows = rows_of(layer, ids_back);
      EXPECT_EQ(std::vector<int32_t>(rows.begin(), rows.end()), wanted) << "position " << position;
    }
    history.push(id);
  }
  EXPECT_EQ(next, expected.size());
}

INSTANTIATE_TEST_SUITE_P(
    Models, EngramGolden,
    testing::Values(GoldenCase{"g3_candidate_engram", {{1, 2}, 4, 2, 60, 253}},
                    GoldenCase{"g4_k256_dspark", {{1}, 3, 1, 80, 253}},
                    GoldenCase{"g5_image", {{0, 2}, 3, 3, 50, 253}},
                    GoldenCase{"g6_deep", {{1, 4}, 4, 4, 60, 253}}),
    [](const auto& test) { return std::string(test.param.folder); });

TEST(EngramHash, DerivesTheTableSizesOfTheSmallModel) {
  const auto layers = derive_engram_hash({{1, 3}, 4, 4, 16000, 6553});
  ASSERT_TRUE(layers.ok());
  EXPECT_EQ((*layers)[0].rows, 192706);
  EXPECT_EQ((*layers)[1].rows, 194042);
}

}  // namespace
}  // namespace fathom
