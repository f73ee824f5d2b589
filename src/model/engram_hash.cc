#include "model/engram_hash.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace fathom {
namespace {

using Uint128 = unsigned __int128;

// numpy.random.SeedSequence(seed).generate_state(4, uint64) for a seed of at most 64 bits: O'Neill's seed_seq
// alternative (https://www.pcg-random.org/posts/developing-a-seed_seq-alternative.html) with a pool of 4.
std::array<uint64_t, 4> seed_sequence(uint64_t seed) {
  uint32_t hash_constant = 0x43B0D7E5;
  const auto hash_mix = [&](uint32_t value) {
    value ^= hash_constant;
    hash_constant *= 0x931E8875;
    value *= hash_constant;
    return value ^ value >> 16;
  };
  std::array<uint32_t, 4> pool;
  for (size_t word = 0; word < 4; ++word)
    pool[word] = hash_mix(word < 2 ? static_cast<uint32_t>(seed >> 32 * word) : 0);
  for (size_t from = 0; from < 4; ++from)
    for (size_t to = 0; to < 4; ++to) {
      if (from == to) continue;
      const uint32_t mixed = 0xCA01F9DDu * pool[to] - 0x4973F715u * hash_mix(pool[from]);
      pool[to] = mixed ^ mixed >> 16;
    }
  std::array<uint64_t, 4> state{};
  uint32_t constant = 0x8B51F9DD;
  for (size_t word = 0; word < 8; ++word) {
    uint32_t value = pool[word % 4] ^ constant;
    constant *= 0x58F38DED;
    value *= constant;
    value ^= value >> 16;
    state[word / 2] |= static_cast<uint64_t>(value) << 32 * (word % 2);
  }
  return state;
}

// numpy's default generator: PCG XSL RR 128/64, seeded by seed_sequence.
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const auto words = seed_sequence(seed);
    increment_ = (static_cast<Uint128>(words[2]) << 64 | words[3]) << 1 | 1;
    step();
    state_ += static_cast<Uint128>(words[0]) << 64 | words[1];
    step();
  }
  uint64_t next() {
    step();
    const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const unsigned turn = static_cast<unsigned>(state_ >> 122);
    return folded >> turn | folded << (-turn & 63);
  }
  // Uniform in [0, bound), bound > 2^32 (numpy draws 32 bits below that): Lemire's multiplication method.
  uint64_t next_below(uint64_t bound) {
    Uint128 product = static_cast<Uint128>(next()) * bound;
    const uint64_t threshold = -bound % bound;
    while (static_cast<uint64_t>(product) < threshold) product = static_cast<Uint128>(next()) * bound;
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  void step() {
    constexpr Uint128 kMultiplier = static_cast<Uint128>(0x2360ED051FC65DA4u) << 64 | 0x4385DF649FCCF645u;
    state_ = state_ * kMultiplier + increment_;
  }
  Uint128 state_ = 0;
  Uint128 increment_;
};

bool is_prime(int64_t number) {
  if (number < 4) return number >= 2;
  if (number % 2 == 0) return false;
  for (int64_t factor = 3; factor * factor <= number; factor += 2)
    if (number % factor == 0) return false;
  return true;
}

Result<void> check_spec(const EngramHashSpec& spec) {
  const auto check = [](const char* what, int64_t value, int64_t low, int64_t high) -> Result<void> {
    if (value >= low && value <= high) return {};
    return Error::invalid("Engram: {} is {}, expected {} to {}", what, value, low, high);
  };
  FATHOM_TRY(check("longest n-gram", spec.ngram_max, 2, 16));
  FATHOM_TRY(check("heads", spec.heads, 1, 1024));
  FATHOM_TRY(check("smallest table", spec.rows_floor, 1, int64_t{1} << 40));
  // Below 2^30 the bound of the multipliers stays above 2^32.
  FATHOM_TRY(check("compressed vocabulary", spec.compressed_vocab_size, 1, (1 << 30) - 1));
  for (const int layer : spec.layer_ids) FATHOM_TRY(check("layer", layer, 0, 1 << 20));
  return {};
}

}  // namespace

Result<std::vector<EngramLayerHash>> derive_engram_hash(const EngramHashSpec& spec) {
  std::vector<EngramLayerHash> layers;
  if (spec.layer_ids.empty()) return layers;
  FATHOM_TRY(check_spec(spec));
  const uint64_t bound = static_cast<uint64_t>(INT64_MAX) / spec.compressed_vocab_size / 2;
  int64_t candidate = spec.rows_floor;  // no prime serves twice, in any layer
  for (const int layer : spec.layer_ids) {
    EngramLayerHash hash;
    Pcg64 random(uint64_t{10007} * static_cast<uint64_t>(layer));
    for (int back = 0; back < spec.ngram_max; ++back)
      hash.multipliers.push_back(static_cast<int64_t>(2 * random.next_below(bound) + 1));
    for (int column = 0; column < (spec.ngram_max - 1) * spec.heads; ++column) {
      while (!is_prime(candidate)) ++candidate;
      hash.primes.push_back(candidate);
      hash.offsets.push_back(hash.rows);
      hash.rows += candidate++;
    }
    layers.push_back(std::move(hash));
  }
  return layers;
}

EngramHistory::EngramHistory(int ngram_max, int32_t pad_id)
    : recent_(ngram_max - 1, kEngramDead), pad_id_(pad_id) {}

void EngramHistory::clear() { std::fill(recent_.begin(), recent_.end(), kEngramDead); }

void EngramHistory::push(int32_t compressed_id) {
  std::copy_backward(recent_.begin(), recent_.end() - 1, recent_.end());
  recent_[0] = compressed_id;
}

void EngramHistory::gather(int32_t compressed_id, std::span<int32_t> ids_back) const {
  FATHOM_CHECK(ids_back.size() == recent_.size() + 1, "Engram history of another n-gram length");
  ids_back[0] = compressed_id;
  bool blocked = false;
  for (size_t back = 1; back < ids_back.size(); ++back) {
    blocked = blocked || recent_[back - 1] == kEngramDead;
    ids_back[back] = blocked ? pad_id_ : recent_[back - 1];
  }
}

void engram_rows(const EngramLayerHash& hash, std::span<const int32_t> ids_back,
                 std::span<int64_t> rows_out) {
  const size_t heads = hash.primes.size() / (ids_back.size() - 1);
  FATHOM_CHECK(ids_back.size() == hash.multipliers.size() && rows_out.size() == hash.primes.size(),
               "Engram hash of another shape");
  uint64_t key = static_cast<uint64_t>(ids_back[0]) * static_cast<uint64_t>(hash.multipliers[0]);
  size_t column = 0;
  for (size_t back = 1; back < ids_back.size(); ++back) {
    key ^= static_cast<uint64_t>(ids_back[back]) * static_cast<uint64_t>(hash.multipliers[back]);
    for (size_t head = 0; head < heads; ++head, ++column)
      rows_out[column] =
          static_cast<int64_t>(key % static_cast<uint64_t>(hash.primes[column])) + hash.offsets[column];
  }
}

}  // namespace fathom
