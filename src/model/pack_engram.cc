// Where the Engram tables of a pack lie, in each of their encodings.
#include "model/pack_impl.h"
#include "model/pack_names.h"

namespace fathom {
namespace {

TableArray array_of(const Pack::Impl& pack, const TensorEntry& tensor, uint64_t row_bytes) {
  return {.path = pack.path_of(tensor),
          .offset_bytes = tensor.offset_bytes,
          .stride_bytes = row_bytes,
          .row_bytes = row_bytes};
}

// Rows of bytes in a GGUF: what they hold is a key of the file, never a guess from their length alone.
Result<void> raw_rows(const Pack::Impl& pack, const Plane& plane, EngramTableInfo& table) {
  constexpr std::string_view kFp8Rows = "e4m3_e8m0_32_row";
  const int64_t fp8_bytes = table.width + table.width / 32;
  const std::string& encoding = pack.engram_encoding;
  const uint64_t row_bytes = static_cast<uint64_t>(plane.cols);
  table.data = array_of(pack, *plane.tensor, row_bytes);
  if (encoding == fmt::format("{}{}", kFp8Rows, fp8_bytes) && plane.cols == fp8_bytes) {
    if (table.width == 256) {
      table.type = DType::kEngramRow264;
      return {};
    }
    // The same layout at another width: values and scales as two arrays that share rows.
    table.type = DType::kFp8Row32;
    table.scales = table.data;
    table.data.row_bytes = static_cast<uint64_t>(table.width);
    table.scales.offset_bytes += static_cast<uint64_t>(table.width);
    table.scales.row_bytes = static_cast<uint64_t>(table.width / 32);
    return {};
  }
  if (encoding == "lloyd4_e5m3_32_r136" && plane.cols == 136 && table.width == 256) {
    table.type = DType::kEngramRow136;
    return {};
  }
  if (encoding == "q4_k_row144" && plane.cols == 144 && table.width == 256) {
    table.type = DType::kQ4_K;
    return {};
  }
  return Error::unsupported("{}: tensor {}: rows of {} bytes in the encoding \"{}\" for {} values",
                            pack.path_of(*plane.tensor), plane.tensor->name, plane.cols, encoding,
                            table.width);
}

Result<Plane> companion(const Pack::Impl& pack, const Plane& weight, const std::string& name, int64_t cols) {
  const TensorEntry* tensor = pack.find(name);
  if (tensor == nullptr)
    return Error::not_found("{}: tensor {} needs a tensor {}", pack.path_of(*weight.tensor),
                            weight.tensor->name, name);
  FATHOM_ASSIGN(const Plane plane, plane_of(pack, *tensor));
  if (plane.rows != weight.rows || plane.cols != cols)
    return unexpected_tensor(pack, *tensor, fmt::format("[{}, {}]", weight.rows, cols));
  return plane;
}

// e4m3 values and their scales as two tensors of the release.
Result<void> official_rows(const Pack::Impl& pack, const Plane& plane, const std::string& module,
                           EngramTableInfo& table) {
  FATHOM_ASSIGN(const Plane scales, companion(pack, plane, module + ".scale", table.width / 32));
  if (scales.tensor->type != DType::kF8E8M0 && scales.tensor->type != DType::kU8)
    return unexpected_tensor(pack, *scales.tensor, "F8_E8M0");
  table.type = DType::kFp8Row32;
  table.data = array_of(pack, *plane.tensor, static_cast<uint64_t>(table.width));
  table.scales = array_of(pack, *scales.tensor, static_cast<uint64_t>(table.width / 32));
  return {};
}

Result<void> mlx_rows(const Pack::Impl& pack, const Plane& plane, const std::string& module,
                      EngramTableInfo& table) {
  const TensorEntry* stored_scales = pack.find(module + ".scales");
  if (stored_scales == nullptr)
    return Error::not_found("{}: tensor {} needs a tensor {}.scales", pack.path_of(*plane.tensor),
                            plane.tensor->name, module);
  FATHOM_ASSIGN(const Plane first, plane_of(pack, *stored_scales));
  FATHOM_ASSIGN(const MlxEncoding encoding, mlx_encoding(pack, plane, first, table.width));
  FATHOM_ASSIGN(const Plane scales, companion(pack, plane, module + ".scales", table.width / encoding.group));
  table.type = encoding.type;
  table.data = array_of(pack, *plane.tensor, static_cast<uint64_t>(plane.cols) * 4);
  const uint64_t scale_bytes = scales.bytes / static_cast<uint64_t>(scales.rows);
  table.scales = array_of(pack, *scales.tensor, scale_bytes);
  if (encoding.type != DType::kAffine) return {};
  FATHOM_ASSIGN(const Plane biases, companion(pack, plane, module + ".biases", table.width / encoding.group));
  if (biases.tensor->type != scales.tensor->type)
    return unexpected_tensor(pack, *biases.tensor, scales.tensor->type_name);
  table.biases = array_of(pack, *biases.tensor, scale_bytes);
  table.scale_type = *scales.tensor->type;
  table.bits = encoding.bits;
  table.group = encoding.group;
  return {};
}

Result<void> block_rows(const Pack::Impl& pack, const Plane& plane, EngramTableInfo& table) {
  table.type = *plane.tensor->type;
  const int64_t row_bytes = is_weight_type(table.type) ? row_bytes_of(table.type, table.width) : 0;
  if (row_bytes == 0) return unexpected_tensor(pack, *plane.tensor, "a type of weights");
  table.data = array_of(pack, *plane.tensor, static_cast<uint64_t>(row_bytes));
  return {};
}

}  // namespace

Result<EngramTableInfo> Pack::engram_table(int layer) const {
  const Impl& pack = *impl_;
  if (pack.table_pack) return pack.table_pack->engram_table(layer);
  const int index = pack.config.engram_index(layer);
  if (index < 0) return Error::invalid("layer {} has no Engram table", layer);
  const std::string module = fmt::format("layers.{}.engram.embed", layer);
  const TensorEntry* tensor = pack.find(module + ".weight");
  if (tensor == nullptr) return Error::not_found("{}: no tensor {}.weight", pack.files.front().path, module);
  FATHOM_ASSIGN(const Plane plane, plane_of(pack, *tensor));
  EngramTableInfo table;
  table.rows = pack.config.engram.rows[static_cast<size_t>(index)];
  table.width = pack.config.engram.head_dim;
  table.is_sparse = pack.config.engram.sparse;
  if (plane.rows != table.rows)
    return unexpected_tensor(pack, *tensor, fmt::format("{} rows, as the config says", table.rows));
  switch (*tensor->type) {
    case DType::kI8:
    case DType::kU8: {
      FATHOM_TRY(raw_rows(pack, plane, table));
      return table;
    }
    case DType::kU32: {
      FATHOM_TRY(mlx_rows(pack, plane, module, table));
      return table;
    }
    default: break;
  }
  if (plane.cols != table.width)
    return unexpected_tensor(pack, *tensor, fmt::format("[{}, {}]", table.rows, table.width));
  if (tensor->type == DType::kF8E4M3) {
    FATHOM_TRY(official_rows(pack, plane, module, table));
  } else {
    FATHOM_TRY(block_rows(pack, plane, table));
  }
  return table;
}

}  // namespace fathom
