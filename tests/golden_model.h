// A small random model with its golden numbers, and ways to run it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "format/safetensors.h"
#include "model/model.h"

namespace fathom::testing {

inline std::string data_path(const std::string& name) {
  return std::string(FATHOM_SOURCE_DIR) + "/tests/data/" + name;
}

template <class T>
T unwrap(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
  return std::move(result).value();
}
inline void unwrap(Result<void> result) {
  ASSERT_TRUE(result.ok()) << result.error().message;
}

/// Tensors of a golden.safetensors, as vectors.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path) : files_(unwrap(open_safetensors(path))) {}
  bool has(const std::string& name) const { return files_.find(name) != nullptr; }
  const TensorEntry& entry(const std::string& name) const {
    const TensorEntry* entry = files_.find(name);
    EXPECT_NE(entry, nullptr) << name;
    return *entry;
  }
  std::vector<float> floats(const std::string& name) const {
    const TensorEntry& tensor = entry(name);
    if (*tensor.type == DType::kBF16) {
      std::vector<float> values;
      for (const uint16_t bits : raw<uint16_t>(tensor)) values.push_back(float_from_bf16(bits));
      return values;
    }
    EXPECT_EQ(*tensor.type, DType::kF32) << name;
    return raw<float>(tensor);
  }
  std::vector<int32_t> ints(const std::string& name) const { return raw<int32_t>(entry(name)); }
  std::vector<uint8_t> bytes(const std::string& name) const { return raw<uint8_t>(entry(name)); }

 private:
  template <class T>
  static std::vector<T> raw(const TensorEntry& tensor) {
    std::vector<T> values(tensor.size_bytes / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), tensor.data, tensor.size_bytes);
    return values;
  }
  TensorFiles files_;
};

/// A model loaded with the token map of its golden file.
struct GoldenModel {
  GoldenModel(const std::string& name, Backend& backend, ModelOptions options)
      : golden(data_path("golden/" + name + "/golden.safetensors")) {
    options.engram_token_map = golden.ints("inputs/engram_token_map");
    model = unwrap(Model::load(unwrap(open_pack(data_path("golden/" + name))), backend, std::move(options)));
    prefill = golden.ints("inputs/ids_prefill");
    decode = golden.ints("inputs/ids_decode");
    // Images are for a model with its vision tower: only the text before the first one can be compared.
    if (golden.has("inputs/token_types")) {
      const std::vector<int32_t> types = golden.ints("inputs/token_types");
      size_t text = 0;
      while (text < types.size() && types[text] < 0) ++text;
      has_image = text < types.size();
      if (has_image) prefill.resize(text);
    }
  }

  int vocab() const { return model->config().vocab_size; }

  /// Evaluates `tokens` in chunks of `chunk` and returns the logits of every row.
  std::vector<float> all_logits(SequenceState& state, std::span<const int32_t> tokens, size_t chunk) {
    std::vector<float> logits(tokens.size() * static_cast<size_t>(vocab()));
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const auto part = tokens.subspan(begin, std::min(chunk, tokens.size() - begin));
      const Segment segment{.state = &state, .tokens = part,
                            .is_last_chunk = begin + part.size() == tokens.size(), .logits = LogitRows::kAll,
                            .logits_out = logits.data() + begin * static_cast<size_t>(vocab()),
                            .next_tokens = tokens.subspan(begin + part.size())
                                               .first(std::min(chunk, tokens.size() - begin - part.size()))};
      unwrap(model->run({&segment, 1}));
    }
    return logits;
  }

  /// The same, but only the last row's logits.
  std::vector<float> last_logits(SequenceState& state, std::span<const int32_t> tokens, size_t chunk) {
    std::vector<float> logits(static_cast<size_t>(vocab()));
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const auto part = tokens.subspan(begin, std::min(chunk, tokens.size() - begin));
      const bool last = begin + part.size() == tokens.size();
      const Segment segment{.state = &state, .tokens = part, .is_last_chunk = last,
                            .logits = last ? LogitRows::kLast : LogitRows::kNone, .logits_out = logits.data(),
                            .next_tokens = {}};
      unwrap(model->run({&segment, 1}));
    }
    return logits;
  }

  std::unique_ptr<SequenceState> new_state(int64_t capacity = 512) { return unwrap(model->new_state(capacity)); }

  GoldenFile golden;
  std::unique_ptr<Model> model;
  std::vector<int32_t> prefill;
  std::vector<int32_t> decode;
  bool has_image = false;
};

inline float largest_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_LE(a.size(), b.size());
  float largest = 0;
  for (size_t k = 0; k < std::min(a.size(), b.size()); ++k) {
    const float difference = std::fabs(a[k] - b[k]);
    if (!(difference <= largest)) largest = difference;  // NaN counts as largest
  }
  return largest;
}

}  // namespace fathom::testing
