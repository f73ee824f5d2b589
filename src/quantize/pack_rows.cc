#include "quantize/pack_rows.h"

#include <algorithm>
#include <cstring>

#include "quantize/encode.h"

namespace fathom {
namespace {

constexpr int64_t kTileRows = 32;

// Where source and target are laid out alike, rows [row, row + count) of one array.
void copy_rows(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, int64_t bytes,
               int64_t row, int64_t count) {
  for (int64_t r = 0; r < count; ++r)
    std::memcpy(to + r * to_stride, from + (row + r) * from_stride, static_cast<size_t>(bytes));
}

// An Engram row of 264 bytes is e4m3 codes with their scales behind them.
WeightMatrix as_separate(const WeightMatrix& source) {
  WeightMatrix same = source;
  if (source.type != DType::kEngramRow264) return same;
  same.type = DType::kFp8Row32;
  same.scales = source.data + source.cols;
  same.scale_row_bytes = source.row_bytes;
  return same;
}

class Converter {
 public:
  Converter(const WeightMatrix& source, const PlannedUnit& unit, std::span<const float> importance)
      : source_(as_separate(source)), unit_(unit), importance_(importance) {}

  Result<void> run(int64_t row, int64_t count, const RowTarget& out) const {
    if (source_.type == unit_.encoding) return copy(row, count, out);
    if (source_.type == DType::kFp4Row32 && unit_.encoding == DType::kMXFP4) {
      for (int64_t r = 0; r < count; ++r)
        repack_fp4_as_mxfp4(data(row + r), scales(row + r), source_.cols, out.values + r * out.value_stride);
      return {};
    }
    if (source_.type == DType::kMXFP4 && unit_.encoding == DType::kFp4Row32) {
      for (int64_t r = 0; r < count; ++r)
        repack_mxfp4_as_fp4(data(row + r), source_.cols, out.values + r * out.value_stride,
                            out.scales + r * out.scale_stride);
      return {};
    }
    if (unit_.encoding == DType::kFp8Tile32) return tiles(row, count, out);
    return encode(row, count, out);
  }

 private:
  const std::byte* data(int64_t row) const { return source_.data + row * source_.row_bytes; }
  const std::byte* scales(int64_t row) const { return source_.scales + row * source_.scale_row_bytes; }

  Result<void> copy(int64_t row, int64_t count, const RowTarget& out) const {
    copy_rows(source_.data, source_.row_bytes, out.values, out.value_stride, unit_.value_row_bytes(), row,
              count);
    if (out.scales == nullptr) return {};
    const int64_t step = unit_.scale_rows();
    copy_rows(source_.scales, source_.scale_row_bytes, out.scales, out.scale_stride, unit_.scale_row_bytes(),
              row / step, (count + step - 1) / step);
    return {};
  }

  Result<void> decode(int64_t row, std::vector<float>& values) const {
    decode_row(source_, row, values.data());
    return check_encodable(unit_.encoding, values, fmt::format("tensor {}: row {}", unit_.tensor.name, row));
  }

  Result<void> encode(int64_t row, int64_t count, const RowTarget& out) const {
    std::vector<float> values(static_cast<size_t>(source_.cols));
    for (int64_t r = 0; r < count; ++r) {
      FATHOM_TRY(decode(row + r, values));
      std::byte* to = out.values + r * out.value_stride;
      if (unit_.encoding == DType::kFp4Row32) {
        encode_fp4_row(values, importance_, to, out.scales + r * out.scale_stride);
      } else if (unit_.encoding == DType::kFp8Row32) {
        encode_fp8_row(values, to, out.scales + r * out.scale_stride);
      } else {
        encode_row(unit_.encoding, values, importance_, to);
      }
    }
    return {};
  }

  // Whether 32 rows have one and the same row of scales: what was once tiles can be tiles again.
  bool shares_scales(int64_t row, int64_t count) const {
    if (source_.type != DType::kFp8Row32) return false;
    for (int64_t r = 1; r < count; ++r)
      if (std::memcmp(scales(row), scales(row + r), static_cast<size_t>(source_.cols / 32)) != 0)
        return false;
    return true;
  }

  Result<void> tiles(int64_t row, int64_t count, const RowTarget& out) const {
    std::vector<float> values(static_cast<size_t>(source_.cols * kTileRows)),
        one(static_cast<size_t>(source_.cols));
    for (int64_t r = 0; r < count; r += kTileRows) {
      const int64_t rows = std::min(kTileRows, count - r);
      std::byte* codes = out.values + r * out.value_stride;
      std::byte* scale_row = out.scales + r / kTileRows * out.scale_stride;
      if (shares_scales(row + r, rows)) {
        copy_rows(source_.data, source_.row_bytes, codes, out.value_stride, source_.cols, row + r, rows);
        std::memcpy(scale_row, scales(row + r), static_cast<size_t>(source_.cols / 32));
        continue;
      }
      for (int64_t k = 0; k < rows; ++k) {
        FATHOM_TRY(decode(row + r + k, one));
        std::copy(one.begin(), one.end(), values.begin() + k * source_.cols);
      }
      encode_fp8_tiles({.values = values.data(), .rows = rows, .cols = source_.cols}, codes, scale_row);
    }
    return {};
  }

  WeightMatrix source_;
  const PlannedUnit& unit_;
  std::span<const float> importance_;
};

}  // namespace

Result<void> convert_rows(const WeightMatrix& source, const PlannedUnit& unit, int64_t row, int64_t count,
                          std::span<const float> importance, const RowTarget& out) {
  return Converter(source, unit, importance).run(row, count, out);
}

Result<void> PackRows::begin(const PlannedUnit& unit, int64_t index) {
  unit_ = &unit;
  first_row_ = 0;
  columns_ = {};
  if (unit.kind == PlannedUnit::Kind::kTable) return begin_table(unit);
  return begin_matrix(unit, index);
}

Result<void> PackRows::begin_matrix(const PlannedUnit& unit, int64_t index) {
  const TensorShape& tensor = unit.tensor;
  if (tensor.is_vector) {
    FATHOM_ASSIGN(vector_, pack_.vector(tensor.name, tensor.rows * tensor.cols));
    matrix_ = {.type = DType::kF32,
               .rows = tensor.rows,
               .cols = tensor.cols,
               .data = reinterpret_cast<const std::byte*>(vector_.data()),
               .row_bytes = tensor.cols * 4};
    return {};
  }
  const int64_t expert = unit.expert >= 0 ? unit.expert : index;
  if (importance_ != nullptr)
    columns_ = importance_->for_tensor(tensor.name, tensor.experts > 0 ? expert : -1);
  if (tensor.experts == 0) {
    FATHOM_ASSIGN(matrix_, pack_.matrix(tensor.name, tensor.rows, tensor.cols));
    return {};
  }
  // "layers.3.ffn.experts.w1.weight": block and matrix.
  const std::string block = tensor.name.substr(0, tensor.name.find(".ffn."));
  const std::string which = tensor.name.substr(tensor.name.size() - 9, 2);
  FATHOM_ASSIGN(matrix_, pack_.expert_matrix(block, expert, which, tensor.rows, tensor.cols));
  return {};
}

Result<void> PackRows::begin_table(const PlannedUnit& unit) {
  FATHOM_ASSIGN(table_, pack_.engram_table(unit.layer));
  const TableArray* const places[] = {&table_.data, &table_.scales, &table_.biases};
  for (size_t which = 0; which < std::size(windows_); ++which) {
    TableWindow& window = windows_[which];
    window.place = *places[which];
    window.file.reset();
    if (window.place.row_bytes == 0) continue;
    FATHOM_ASSIGN(window.file, RandomAccessFile::open(window.place.path));
  }
  return {};
}

Result<void> PackRows::read(TableWindow& window, int64_t row, int64_t count) {
  if (!window.file) return {};
  const TableArray& place = window.place;
  window.bytes.resize(static_cast<uint64_t>(count - 1) * place.stride_bytes + place.row_bytes);
  return window.file->read_at(place.offset_bytes + static_cast<uint64_t>(row) * place.stride_bytes,
                              window.bytes);
}

Result<void> PackRows::prepare(int64_t row, int64_t count) {
  if (unit_->kind != PlannedUnit::Kind::kTable) return {};
  for (TableWindow& window : windows_) FATHOM_TRY(read(window, row, count));
  first_row_ = row;
  matrix_ = {.type = table_.type,
             .rows = count,
             .cols = table_.width,
             .data = windows_[0].bytes.data(),
             .row_bytes = static_cast<int64_t>(table_.data.stride_bytes),
             .scales = windows_[1].bytes.data(),
             .scale_row_bytes = static_cast<int64_t>(table_.scales.stride_bytes),
             .biases = windows_[2].bytes.data(),
             .bias_row_bytes = static_cast<int64_t>(table_.biases.stride_bytes),
             .scale_type = table_.scale_type,
             .bits = table_.bits,
             .group = table_.group};
  return {};
}

Result<void> PackRows::fill(int64_t row, int64_t count, const RowTarget& out) const {
  return convert_rows(matrix_, *unit_, row - first_row_, count, columns_, out);
}

Result<std::span<const std::byte>> PackRows::copy(const PlannedUnit& unit) {
  const PackTensor& tensor = pack_.tensors()[unit.source];
  FATHOM_ASSIGN(const RandomAccessFile file,
                RandomAccessFile::open(pack_.files()[static_cast<size_t>(tensor.file)].path));
  copied_.resize(tensor.size_bytes);
  FATHOM_TRY(file.read_at(tensor.offset_bytes, copied_));
  return std::span<const std::byte>(copied_);
}

}  // namespace fathom
