#include "model/engram_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "tensor/formats/engram_row.h"
#include "tensor/weight.h"

namespace fathom {
namespace {

// Two rows are read at once when at most one page lies between them: reads go through the page cache, which
// fetches whole pages, so the gap costs less than a second request.
constexpr uint64_t kMergeGapBytes = 4096;

// Neighbouring zero samples count as a hole from this distance on. Rows that training never touched may be
// zero side by side in a small table; a copy is not made sparse for so little.
constexpr uint64_t kHoleBytes = 1 << 20;

// E8M0 scales of real tables lie near 127; anything outside 2^-63 .. 2^64 is not a scale.
constexpr int kScaleMin = 64;
constexpr int kScaleMax = 191;

// Bytes a row takes in data, scales and biases.
struct RowBytes {
  int64_t data = 0;
  int64_t scales = 0;
  int64_t biases = 0;
};

Result<RowBytes> expected_row_bytes(const EngramTableInfo& info) {
  const auto refuse = [&](const std::string& what) {
    return Error::bad_pack("{}: Engram table of {} rows, {} values of {} a row: {}", info.data.path,
                           info.rows, info.width, dtype_name(info.type), what);
  };
  if (info.rows <= 0 || info.width <= 0) return refuse("expected at least one row and one value");
  if (!is_weight_type(info.type) || info.type == DType::kFp8Tile32)
    return refuse("expected an encoding whose rows stand alone");
  RowBytes bytes{.data = row_bytes_of(info.type, info.width, info.bits)};
  if (bytes.data <= 0) return refuse(fmt::format("expected whole blocks ({} bits a code)", info.bits));
  if (info.type == DType::kFp8Row32 || info.type == DType::kFp4Row32) bytes.scales = info.width / 32;
  if (info.type == DType::kAffine) {
    if ((info.group != 32 && info.group != 64 && info.group != 128) || info.width % info.group != 0)
      return refuse(fmt::format("expected groups of 32, 64 or 128 that fill a row, found {}", info.group));
    if (info.scale_type != DType::kF32 && info.scale_type != DType::kF16 && info.scale_type != DType::kBF16)
      return refuse(fmt::format("expected F32, F16 or BF16 scales, found {}", dtype_name(info.scale_type)));
    bytes.scales = bytes.biases = info.width / info.group * dtype_info(info.scale_type).block_bytes;
  }
  return bytes;
}

bool all_zero(const std::byte* bytes, uint64_t count) {
  return std::all_of(bytes, bytes + count, [](std::byte value) { return value == std::byte{0}; });
}

Error hole_error(const TableArray& place, const std::string& where, const std::string& found = "zero bytes") {
  std::string allocated;
  if (const Result<FileInfo> info = file_info(place.path); info.ok())
    allocated = fmt::format(" ({} of {} bytes allocated)", info.value().allocated_bytes,
                            info.value().size_bytes);
  return Error::bad_pack("{}: Engram table at offset {}: expected values, found {} in {}: this looks like a "
                         "hole in a sparse or unfinished copy{}",
                         place.path, place.offset_bytes, found, where, allocated);
}

}  // namespace

EngramScratch::EngramScratch(size_t bytes_per_array)
    : bytes(std::make_unique_for_overwrite<std::byte[]>(kArrays * bytes_per_array)),
      array_bytes(bytes_per_array) {}

Result<EngramTable> EngramTable::open(const EngramTableInfo& info) {
  FATHOM_ASSIGN(const RowBytes bytes, expected_row_bytes(info));
  EngramTable table(info);
  FATHOM_TRY(table.open_array(table.arrays_[0], info.data, bytes.data, "data"));
  FATHOM_TRY(table.open_array(table.arrays_[1], info.scales, bytes.scales, "scales"));
  FATHOM_TRY(table.open_array(table.arrays_[2], info.biases, bytes.biases, "biases"));
  return table;
}

Result<void> EngramTable::open_array(Array& array, const TableArray& place, int64_t row_bytes,
                                     const char* what) {
  if (row_bytes == 0) return {};
  const std::string& path = place.path.empty() ? info_.data.path : place.path;
  if (place.path.empty() || place.row_bytes != static_cast<uint64_t>(row_bytes) ||
      place.stride_bytes < place.row_bytes)
    return Error::bad_pack("{}: Engram table {}: expected {} bytes a row, found {} with a stride of {}", path,
                           what, row_bytes, place.row_bytes, place.stride_bytes);
  FATHOM_ASSIGN(RandomAccessFile file, RandomAccessFile::open(path));
  // Whole rows between the offset and the end of the file; the last one needs no full stride.
  const uint64_t size = file.size_bytes();
  uint64_t present = 0;
  if (size >= place.row_bytes && place.offset_bytes <= size - place.row_bytes)
    present = (size - place.row_bytes - place.offset_bytes) / place.stride_bytes + 1;
  if (present < static_cast<uint64_t>(info_.rows))
    return Error::bad_pack("{}: Engram table {} at offset {}: expected {} rows of {} bytes, the file ends in "
                           "row {}", path, what, place.offset_bytes, info_.rows, place.row_bytes, present);
  file.advise_random();
  array.place = place;
  array.file.emplace(std::move(file));
  return {};
}

size_t EngramTable::scratch_array_bytes() const {
  uint64_t row_bytes = 0;
  for (const Array& array : arrays_) row_bytes = std::max(row_bytes, array.place.row_bytes);
  return EngramScratch::kMaxRows * (row_bytes + kMergeGapBytes);
}

Result<uint64_t> EngramTable::load(std::span<const int64_t> rows, EngramScratch& scratch) const {
  FATHOM_CHECK(rows.size() <= EngramScratch::kMaxRows, "{} rows", rows.size());
  uint64_t read_bytes = 0;
  for (int which = 0; which < EngramScratch::kArrays; ++which) {
    if (!arrays_[which].file) continue;
    FATHOM_ASSIGN(const uint64_t bytes, load_array(which, rows, scratch));
    read_bytes += bytes;
  }
  return read_bytes;
}

Result<uint64_t> EngramTable::load_array(int which, std::span<const int64_t> rows,
                                         EngramScratch& scratch) const {
  const TableArray& place = arrays_[which].place;
  std::byte* const buffer = scratch.bytes.get() + static_cast<size_t>(which) * scratch.array_bytes;
  const auto distance = [&](size_t from, size_t to) {
    return static_cast<uint64_t>(rows[to] - rows[from]) * place.stride_bytes;
  };
  uint64_t used = 0;
  for (size_t first = 0, end = 0; first < rows.size(); first = end) {
    for (end = first + 1; end < rows.size(); ++end)
      if (distance(end - 1, end) > place.row_bytes + kMergeGapBytes) break;
    const uint64_t length = distance(first, end - 1) + place.row_bytes;
    FATHOM_CHECK(used + length <= scratch.array_bytes);
    const uint64_t offset = place.offset_bytes + static_cast<uint64_t>(rows[first]) * place.stride_bytes;
    if (auto read = arrays_[which].file->read_at(offset, {buffer + used, length}); !read.ok())
      return Error::make(read.error().code, "{} (Engram table rows {} to {})", read.error().message,
                         rows[first], rows[end - 1]);
    for (size_t index = first; index < end; ++index)
      scratch.rows[which][index] = buffer + used + distance(first, index);
    used += length;
  }
  return used;
}

Result<void> EngramTable::decode(const EngramScratch& scratch, int index, int64_t row, float* out) const {
  const std::byte* data = scratch.rows[0][index];
  const std::byte* scales = scratch.rows[1][index];
  const auto* codes = reinterpret_cast<const uint8_t*>(data);
  bool valid = true;
  if (info_.type == DType::kEngramRow264) {
    valid = decode_engram_row_fp8(codes, codes + info_.width, info_.width, out);
  } else if (info_.type == DType::kFp8Row32) {
    valid = decode_engram_row_fp8(codes, reinterpret_cast<const uint8_t*>(scales), info_.width, out);
  } else {
    const WeightMatrix one_row{.type = info_.type, .rows = 1, .cols = info_.width, .data = data,
                               .scales = scales, .biases = scratch.rows[2][index],
                               .scale_type = info_.scale_type, .bits = info_.bits, .group = info_.group};
    decode_row(one_row, 0, out);
    for (int64_t col = 0; col < info_.width; ++col) out[col] = round_to_bf16(out[col]);
  }
  // Whatever the encoding, NaN and infinity have all exponent bits set.
  constexpr uint32_t kExponent = 0x7F800000u;
  uint32_t largest = 0;
  for (int64_t col = 0; col < info_.width; ++col)
    largest = std::max(largest, bits_of_float(out[col]) & kExponent);
  if (valid && largest != kExponent) return {};
  const TableArray& place = info_.data;
  return Error::bad_pack("{}: row {} of the Engram table, {} bytes at offset {}: expected {}, found an "
                         "invalid code or scale", place.path, row, place.row_bytes,
                         place.offset_bytes + static_cast<uint64_t>(row) * place.stride_bytes,
                         dtype_name(info_.type));
}

Result<void> EngramTable::check_samples() const {
  int64_t samples[EngramScratch::kMaxRows];
  const int64_t count = std::min<int64_t>(info_.rows, EngramScratch::kMaxRows);
  for (int64_t sample = 0; sample < count; ++sample) {
    // rows - 1 may exceed 2^58 only in a file that cannot exist, so the product does not overflow.
    samples[sample] = count == 1 ? 0 : sample * (info_.rows - 1) / (count - 1);
  }
  const std::span<const int64_t> rows(samples, static_cast<size_t>(count));
  EngramScratch scratch(scratch_array_bytes());
  FATHOM_ASSIGN([[maybe_unused]] const uint64_t read_bytes, load(rows, scratch));
  for (int which = 0; which < EngramScratch::kArrays; ++which)
    if (arrays_[which].file && !info_.is_sparse) FATHOM_TRY(check_zero_samples(which, rows, scratch));
  FATHOM_TRY(check_scales(rows, scratch));
  std::vector<float> values(static_cast<size_t>(info_.width));
  for (size_t index = 0; index < rows.size(); ++index)
    FATHOM_TRY(decode(scratch, static_cast<int>(index), rows[index], values.data()));
  return {};
}

Result<void> EngramTable::check_zero_samples(int which, std::span<const int64_t> rows,
                                             const EngramScratch& scratch) const {
  const TableArray& place = arrays_[which].place;
  size_t zero_samples = 0;
  bool before_is_zero = false;
  for (size_t index = 0; index < rows.size(); ++index) {
    const bool is_zero = all_zero(scratch.rows[which][index], place.row_bytes);
    if (is_zero && before_is_zero &&
        static_cast<uint64_t>(rows[index] - rows[index - 1]) * place.stride_bytes >= kHoleBytes)
      return hole_error(place, fmt::format("rows {} and {}", rows[index - 1], rows[index]));
    before_is_zero = is_zero;
    zero_samples += is_zero ? 1 : 0;
  }
  if (zero_samples == rows.size())
    return hole_error(place, fmt::format("all {} sampled rows", rows.size()));
  return {};
}

Result<void> EngramTable::check_scales(std::span<const int64_t> rows, const EngramScratch& scratch) const {
  const bool scales_apart = info_.type == DType::kFp8Row32 || info_.type == DType::kFp4Row32;
  if (!scales_apart && info_.type != DType::kEngramRow264) return {};
  const int code_bytes = info_.type == DType::kFp4Row32 ? 16 : 32;  // of one scale
  const auto sign_free = info_.type == DType::kFp4Row32 ? std::byte{0x77} : std::byte{0x7F};
  for (size_t index = 0; index < rows.size(); ++index) {
    const std::byte* codes = scratch.rows[0][index];
    const std::byte* scales = scales_apart ? scratch.rows[1][index] : codes + info_.width;
    for (int64_t group = 0; group < info_.width / 32; ++group) {
      const int scale = static_cast<int>(scales[group]);
      if (scale >= kScaleMin && scale <= kScaleMax) continue;
      const std::byte* group_codes = codes + group * code_bytes;
      const bool only_zeros = std::all_of(group_codes, group_codes + code_bytes, [&](std::byte code) {
        return (code & sign_free) == std::byte{0};
      });
      if (only_zeros) continue;
      return hole_error(scales_apart ? info_.scales : info_.data, fmt::format("row {}", rows[index]),
                        fmt::format("scale byte {} (not {} to {})", scale, kScaleMin, kScaleMax));
    }
  }
  return {};
}

}  // namespace fathom
