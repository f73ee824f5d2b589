// Helpers of tests: a small official pack rewritten without loss in the other dialects.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "format/gguf_writer.h"
#include "format/safetensors_writer.h"
#include "format/test_files.h"
#include "model/pack.h"

namespace fathom {

inline std::string golden_folder(const std::string& model) {
  return std::string(FATHOM_SOURCE_DIR) + "/tests/data/golden/" + model;
}

struct MatrixShape {
  std::string name;
  int64_t rows;
  int64_t cols;
};

/// Every matrix of a block but its routed experts. `block` is "layers.3" or "mtp.0".
inline std::vector<MatrixShape> block_matrices(const ModelConfig& c, const std::string& block, int experts) {
  const int64_t hidden = c.hidden_size, inner = c.moe_intermediate_size, outputs = c.o_groups * c.o_lora_rank;
  std::vector<MatrixShape> list = {
      {"hc_attn_fn", c.hc_mixes(), c.hc_mult * hidden},
      {"hc_ffn_fn", c.hc_mixes(), c.hc_mult * hidden},
      {"attn.wq_a.weight", c.q_lora_rank, hidden},
      {"attn.wq_b.weight", c.head_width(), c.q_lora_rank},
      {"attn.wkv.weight", c.head_dim, hidden},
      {"attn.wo_a.weight", outputs, c.head_width() / c.o_groups},
      {"attn.wo_b.weight", hidden, outputs},
      {"ffn.gate.weight", experts, hidden},
      {"ffn.shared_experts.w1.weight", inner, hidden},
      {"ffn.shared_experts.w3.weight", inner, hidden},
      {"ffn.shared_experts.w2.weight", hidden, inner},
  };
  const int layer = block.starts_with("layers.") ? std::stoi(block.substr(7)) : -1;
  if (layer >= 0 && c.is_kv_source(layer)) {
    list.push_back({"attn.compressor.wkv.weight", c.head_dim, hidden});
    if (c.ratio(layer) == 2) list.push_back({"attn.compressor.wgate.weight", c.head_dim, hidden});
    list.push_back({"attn.indexer.wk.weight", c.index_head_dim, c.head_dim});
  }
  if (layer >= 0 && c.is_index_source(layer)) {
    list.push_back({"attn.indexer.wq_b.weight", c.index_heads * c.index_head_dim, c.q_lora_rank});
    list.push_back({"attn.indexer.weights_proj.weight", c.index_heads, hidden});
  }
  if (layer >= 0 && c.engram_index(layer) >= 0) {
    list.push_back({"engram.wkv.weight", (1 + c.hc_mult) * hidden, c.engram.width()});
    list.push_back({"engram.q_weight", c.hc_mult, hidden});
    list.push_back({"engram.k_weight", c.hc_mult, hidden});
  }
  for (MatrixShape& item : list) item.name = block + "." + item.name;
  return list;
}

inline std::vector<MatrixShape> block_vectors(const ModelConfig& c, const std::string& block, int experts) {
  std::vector<MatrixShape> list = {
      {"attn_norm.weight", 1, c.hidden_size}, {"ffn_norm.weight", 1, c.hidden_size},
      {"hc_attn_base", 1, c.hc_mixes()},      {"hc_attn_scale", 1, 3},
      {"hc_ffn_base", 1, c.hc_mixes()},       {"hc_ffn_scale", 1, 3},
      {"attn.attn_sink", 1, c.num_heads},     {"attn.q_norm.weight", 1, c.q_lora_rank},
      {"attn.kv_norm.weight", 1, c.head_dim}, {"ffn.gate.bias", 1, experts},
  };
  const int layer = block.starts_with("layers.") ? std::stoi(block.substr(7)) : -1;
  if (layer >= 0 && c.is_kv_source(layer)) {
    list.push_back({"attn.compressor.norm.weight", 1, c.head_dim});
    list.push_back({"attn.indexer.k_norm.weight", 1, c.index_head_dim});
  }
  for (MatrixShape& item : list) item.name = block + "." + item.name;
  return list;
}

inline std::vector<MatrixShape> expert_shapes(const ModelConfig& c) {
  return {{"w1", c.moe_intermediate_size, c.hidden_size},
          {"w3", c.moe_intermediate_size, c.hidden_size},
          {"w2", c.hidden_size, c.moe_intermediate_size}};
}

/// All values of a matrix.
inline std::vector<float> decode(const WeightMatrix& weight) {
  std::vector<float> values(static_cast<size_t>(weight.rows * weight.cols));
  for (int64_t row = 0; row < weight.rows; ++row) decode_row(weight, row, values.data() + row * weight.cols);
  return values;
}

inline std::vector<float> matrix_values(const Pack& pack, const MatrixShape& shape) {
  const auto weight = pack.matrix(shape.name, shape.rows, shape.cols);
  EXPECT_TRUE(weight.ok()) << weight.error().message;
  return weight.ok() ? decode(*weight) : std::vector<float>();
}
inline std::vector<float> expert_values(const Pack& pack, const std::string& block, int64_t expert,
                                        const MatrixShape& shape) {
  const auto weight = pack.expert_matrix(block, expert, shape.name, shape.rows, shape.cols);
  EXPECT_TRUE(weight.ok()) << weight.error().message;
  return weight.ok() ? decode(*weight) : std::vector<float>();
}
inline std::vector<float> vector_values(const Pack& pack, const MatrixShape& shape) {
  const auto values = pack.vector(shape.name, shape.cols);
  EXPECT_TRUE(values.ok()) << values.error().message;
  return values.ok() ? *values : std::vector<float>();
}

/// Row `row` of a table, read from its files.
inline std::vector<float> table_row(const EngramTableInfo& table, int64_t row) {
  const auto read = [&](const TableArray& array) {
    std::vector<std::byte> bytes(array.row_bytes);
    if (bytes.empty()) return bytes;
    const auto file = RandomAccessFile::open(array.path);
    EXPECT_TRUE(
        file.ok() &&
        file->read_at(array.offset_bytes + static_cast<uint64_t>(row) * array.stride_bytes, bytes).ok());
    return bytes;
  };
  const std::vector<std::byte> data = read(table.data), scales = read(table.scales),
                               biases = read(table.biases);
  const WeightMatrix weight{.type = table.type,
                            .rows = 1,
                            .cols = table.width,
                            .data = data.data(),
                            .scales = scales.data(),
                            .biases = biases.data(),
                            .scale_type = table.scale_type,
                            .bits = table.bits,
                            .group = table.group};
  std::vector<float> values(static_cast<size_t>(table.width));
  decode_row(weight, 0, values.data());
  return values;
}

inline std::string bytes_of_bf16(const std::vector<float>& values) {
  std::string bytes(values.size() * 2, '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = bf16_from_float(values[i]);
    EXPECT_EQ(float_from_bf16(half), values[i]) << "not exact in bfloat16";
    std::memcpy(bytes.data() + 2 * i, &half, 2);
  }
  return bytes;
}
inline std::string bytes_of_f32(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4);
}

/// FP4 rows of the release as MXFP4 blocks: (even, odd) pairs become (element, element + 16) pairs.
inline std::string repack_mxfp4(const WeightMatrix& fp4) {
  std::string bytes;
  for (int64_t row = 0; row < fp4.rows; ++row) {
    const std::byte* codes = fp4.data + row * fp4.row_bytes;
    const auto code = [&](int64_t col) {
      const unsigned pair = static_cast<unsigned>(codes[col / 2]);
      return col % 2 == 0 ? pair & 15u : pair >> 4;
    };
    for (int64_t block = 0; block < fp4.cols / 32; ++block) {
      bytes += static_cast<char>(fp4.scales[row * fp4.scale_row_bytes + block]);
      for (int64_t i = 0; i < 16; ++i)
        bytes += static_cast<char>(code(32 * block + i) | code(32 * block + 16 + i) << 4);
    }
  }
  return bytes;
}

/// A tensor to be written by either writer.
struct PlannedTensor {
  std::string name;
  DType type;
  std::vector<int64_t> shape;
  std::string bytes;
};

inline void write_gguf(GgufWriter& writer, const std::string& path,
                       const std::vector<PlannedTensor>& tensors) {
  for (const PlannedTensor& tensor : tensors) writer.add_tensor(tensor.name, tensor.type, tensor.shape);
  ASSERT_TRUE(writer.begin(path).ok());
  for (const PlannedTensor& tensor : tensors) {
    const auto wrote = writer.write(as_span(tensor.bytes));
    ASSERT_TRUE(wrote.ok()) << wrote.error().message;
  }
  ASSERT_TRUE(writer.finish().ok());
}

inline void write_safetensors(const std::string& path, const std::vector<PlannedTensor>& tensors) {
  std::vector<SafetensorsPlan> plan;
  for (const PlannedTensor& tensor : tensors) plan.push_back({tensor.name, tensor.type, tensor.shape});
  auto writer = SafetensorsWriter::create(path, plan);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  for (const PlannedTensor& tensor : tensors) ASSERT_TRUE(writer->write(as_span(tensor.bytes)).ok());
  const auto finished = writer->finish();
  ASSERT_TRUE(finished.ok()) << finished.error().message;
}

}  // namespace fathom
