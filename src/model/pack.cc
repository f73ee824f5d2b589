#include "model/pack.h"

#include <utility>

#include "model/pack_impl.h"
#include "model/pack_names.h"

namespace fathom {
namespace {

bool is_scale_byte(const TensorEntry& tensor) {
  return tensor.type == DType::kF8E8M0 || tensor.type == DType::kU8;
}
bool is_float(std::optional<DType> type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

// Asks for one matrix; `bank` is meaningful when banks > 0.
struct Request {
  std::string_view name;  // of the tensor or bank
  int64_t rows;
  int64_t cols;
  int64_t bank = 0;
  int64_t banks = 0;
};

class MatrixReader {
 public:
  MatrixReader(const Pack::Impl& pack, const Request& request) : pack_(pack), request_(request) {}

  Result<WeightMatrix> read() {
    const TensorEntry* tensor = pack_.find(request_.name);
    if (tensor == nullptr)
      return Error::not_found("{}: no tensor {}", pack_.files.front().path, request_.name);
    FATHOM_ASSIGN(weight_, plane_of(pack_, *tensor, request_.bank, request_.banks));
    matrix_.rows = request_.rows;
    matrix_.cols = request_.cols;
    matrix_.data = weight_.data;
    switch (*tensor->type) {
      case DType::kF8E4M3: return fp8();
      case DType::kI8:
      case DType::kU8: return fp4();
      case DType::kU32: return mlx();
      default: return blocks();
    }
  }

 private:
  Result<void> expect(const Plane& plane, int64_t rows, int64_t cols) const {
    if (plane.rows == rows && plane.cols == cols) return {};
    return unexpected_tensor(pack_, *plane.tensor, fmt::format("[{}, {}]", rows, cols));
  }

  // The tensor that holds scales or biases of this one.
  Result<Plane> companion(std::string_view suffix) const {
    const std::string name = fmt::format("{}{}", module_of(request_.name), suffix);
    const TensorEntry* tensor = pack_.find(name);
    if (tensor == nullptr)
      return Error::not_found("{}: tensor {} is {}, which needs a tensor {}", pack_.path_of(*weight_.tensor),
                              request_.name, weight_.tensor->type_name, name);
    return plane_of(pack_, *tensor, request_.bank, request_.banks);
  }

  Result<WeightMatrix> blocks() {
    const DType type = *weight_.tensor->type;
    FATHOM_TRY(expect(weight_, request_.rows, request_.cols));
    matrix_.type = type;
    matrix_.row_bytes = is_weight_type(type) ? row_bytes_of(type, request_.cols) : 0;
    if (matrix_.row_bytes == 0) return unexpected_tensor(pack_, *weight_.tensor, "a type of weights");
    return matrix_;
  }

  Result<WeightMatrix> fp8() {
    FATHOM_TRY(expect(weight_, request_.rows, request_.cols));
    FATHOM_ASSIGN(const Plane scales, companion(".scale"));
    const int64_t tile_rows = (request_.rows + 31) / 32;
    const int64_t tile_cols = (request_.cols + 31) / 32;
    if (!is_scale_byte(*scales.tensor) || scales.cols != tile_cols ||
        (scales.rows != tile_rows && scales.rows != request_.rows))
      return unexpected_tensor(pack_, *scales.tensor, fmt::format("F8_E8M0 [{}, {}]", tile_rows, tile_cols));
    if (scales.rows != tile_rows && request_.cols % 32 != 0)
      return unexpected_tensor(pack_, *weight_.tensor, "columns in groups of 32");
    matrix_.type = scales.rows == tile_rows ? DType::kFp8Tile32 : DType::kFp8Row32;
    matrix_.row_bytes = request_.cols;
    return with_scales(scales);
  }

  Result<WeightMatrix> fp4() {
    if (request_.cols % 32 != 0 || pack_.dialect == PackDialect::kDs4Gguf ||
        pack_.dialect == PackDialect::kLlamaCppGguf)
      return unexpected_tensor(pack_, *weight_.tensor, "a type of weights");
    FATHOM_TRY(expect(weight_, request_.rows, request_.cols / 2));
    FATHOM_ASSIGN(const Plane scales, companion(".scale"));
    FATHOM_TRY(expect(scales, request_.rows, request_.cols / 32));
    if (!is_scale_byte(*scales.tensor)) return unexpected_tensor(pack_, *scales.tensor, "F8_E8M0");
    matrix_.type = DType::kFp4Row32;
    matrix_.row_bytes = request_.cols / 2;
    return with_scales(scales);
  }

  Result<WeightMatrix> mlx() {
    FATHOM_ASSIGN(const Plane scales, companion(".scales"));
    FATHOM_ASSIGN(const MlxEncoding encoding, mlx_encoding(pack_, weight_, scales, request_.cols));
    FATHOM_TRY(expect(weight_, request_.rows, request_.cols * encoding.bits / 32));
    FATHOM_TRY(expect(scales, request_.rows, request_.cols / encoding.group));
    matrix_.type = encoding.type;
    matrix_.row_bytes = row_bytes_of(encoding.type, request_.cols, encoding.bits);
    if (encoding.type != DType::kAffine) return with_scales(scales);
    matrix_.bits = encoding.bits;
    matrix_.group = encoding.group;
    FATHOM_ASSIGN(const Plane biases, companion(".biases"));
    FATHOM_TRY(expect(biases, scales.rows, scales.cols));
    if (biases.tensor->type != scales.tensor->type)
      return unexpected_tensor(pack_, *biases.tensor, scales.tensor->type_name);
    matrix_.biases = biases.data;
    matrix_.bias_row_bytes = static_cast<int64_t>(biases.bytes) / biases.rows;
    return with_scales(scales);
  }

  Result<WeightMatrix> with_scales(const Plane& scales) {
    matrix_.scales = scales.data;
    matrix_.scale_row_bytes = static_cast<int64_t>(scales.bytes) / scales.rows;
    matrix_.scale_type = is_scale_byte(*scales.tensor) ? DType::kF8E8M0 : *scales.tensor->type;
    return matrix_;
  }

  const Pack::Impl& pack_;
  const Request& request_;
  Plane weight_;
  WeightMatrix matrix_;
};

}  // namespace

Error unexpected_tensor(const Pack::Impl& pack, const TensorEntry& tensor, std::string_view expected) {
  return Error::bad_pack("{}: tensor {}: expected {}, found {} {}", pack.path_of(tensor), tensor.name,
                         expected, tensor.type_name, shape_text(tensor.shape));
}

Result<Plane> plane_of(const Pack::Impl& pack, const TensorEntry& tensor, int64_t bank, int64_t banks) {
  if (!tensor.type)
    return Error::unsupported("{}: tensor {}: type {} is not one this build reads", pack.path_of(tensor),
                              tensor.name, tensor.type_name);
  if (tensor.data == nullptr)
    return Error::bad_pack("{}: tensor {}: its bytes are not in the file", pack.path_of(tensor), tensor.name);
  if (tensor.size_bytes == 0) return unexpected_tensor(pack, tensor, "values");
  const size_t outer = banks > 0 ? 1 : 0;  // dimensions that are not rows or columns
  if (tensor.shape.size() <= outer || (banks > 0 && tensor.shape[0] != banks))
    return unexpected_tensor(pack, tensor, fmt::format("a bank of {} experts", banks));
  Plane plane{.tensor = &tensor,
              .data = tensor.data,
              .rows = 1,
              .cols = tensor.shape.back(),
              .bytes = tensor.size_bytes};
  for (size_t axis = outer; axis + 1 < tensor.shape.size(); ++axis) plane.rows *= tensor.shape[axis];
  if (banks > 0) {
    plane.bytes = tensor.size_bytes / static_cast<uint64_t>(banks);
    plane.data += plane.bytes * static_cast<uint64_t>(bank);
  }
  return plane;
}

Result<MlxEncoding> mlx_encoding(const Pack::Impl& pack, const Plane& weight, const Plane& scales,
                                 int64_t cols) {
  const TensorEntry& tensor = *weight.tensor;
  const bool is_mx = is_scale_byte(*scales.tensor);
  if (!is_mx && !is_float(scales.tensor->type))
    return unexpected_tensor(pack, *scales.tensor, "U8, BF16, F16 or F32");
  if (cols <= 0 || weight.cols * 32 % cols != 0 || scales.cols <= 0 || cols % scales.cols != 0)
    return unexpected_tensor(pack, tensor, fmt::format("packed rows of {} columns", cols));
  const int64_t bits = weight.cols * 32 / cols;
  const int64_t group = cols / scales.cols;
  MlxEncoding encoding{.bits = static_cast<uint16_t>(bits), .group = static_cast<uint16_t>(group)};
  const bool affine_fits =
      bits >= 2 && bits <= 8 && bits != 7 && (group == 32 || group == 64 || group == 128);
  if (is_mx ? (bits != 4 && bits != 8) || group != 32 : !affine_fits)
    return unexpected_tensor(pack, tensor,
                             fmt::format("a known MLX encoding (found {} bits, groups of {})", bits, group));
  if (is_mx) encoding.type = bits == 4 ? DType::kFp4Row32 : DType::kFp8Row32;
  const std::string_view mode = !is_mx ? "affine" : bits == 4 ? "mxfp4" : "mxfp8";
  const ModuleQuantization* said = pack.module(module_of(official_from_mlx(tensor.name)));
  if (said != nullptr &&
      ((said->bits != 0 && said->bits != bits) || (said->group != 0 && said->group != group) ||
       (!said->mode.empty() && said->mode != mode)))
    return Error::bad_pack(
        "{}: tensor {}: the config says {} {} bits, groups of {}; the shapes say {} {} bits, groups of {}",
        pack.path_of(tensor), tensor.name, said->mode, said->bits, said->group, mode, bits, group);
  return encoding;
}

std::string_view dialect_name(PackDialect dialect) {
  switch (dialect) {
    case PackDialect::kOfficial: return "official";
    case PackDialect::kDs4Gguf: return "GGUF, ds4";
    case PackDialect::kLlamaCppGguf: return "GGUF, llama.cpp";
    case PackDialect::kOMlx: return "MLX, oMLX";
    case PackDialect::kMlx: return "MLX";
  }
  return "unknown";
}

Pack::Pack(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pack::Pack(Pack&&) noexcept = default;
Pack& Pack::operator=(Pack&&) noexcept = default;
Pack::~Pack() = default;

const ModelConfig& Pack::config() const { return impl_->config; }
PackDialect Pack::dialect() const { return impl_->dialect; }
const std::vector<PackFile>& Pack::files() const { return impl_->files; }
const std::vector<PackTensor>& Pack::tensors() const { return impl_->tensors; }
const TokenizerSource& Pack::tokenizer() const { return impl_->tokenizer; }
const EngramConstants& Pack::engram_constants() const { return impl_->constants; }
bool Pack::has_tensor(std::string_view official_name) const { return impl_->find(official_name) != nullptr; }

Result<WeightMatrix> Pack::matrix(std::string_view official_name, int64_t rows, int64_t cols) const {
  const Request request{.name = official_name, .rows = rows, .cols = cols};
  return MatrixReader(*impl_, request).read();
}

Result<std::vector<float>> Pack::vector(std::string_view official_name, int64_t count) const {
  const TensorEntry* tensor = impl_->find(official_name);
  if (tensor == nullptr)
    return Error::not_found("{}: no tensor {}", impl_->files.front().path, official_name);
  FATHOM_ASSIGN(const Plane plane, plane_of(*impl_, *tensor));
  if (!is_weight_type(*tensor->type)) return unexpected_tensor(*impl_, *tensor, "a type of weights");
  if (plane.cols <= 0 || plane.rows * plane.cols != count)
    return unexpected_tensor(*impl_, *tensor, fmt::format("{} values", count));
  const WeightMatrix matrix{.type = *tensor->type,
                            .rows = plane.rows,
                            .cols = plane.cols,
                            .data = plane.data,
                            .row_bytes = row_bytes_of(*tensor->type, plane.cols)};
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t row = 0; row < plane.rows; ++row) decode_row(matrix, row, values.data() + row * plane.cols);
  return values;
}

Result<WeightMatrix> Pack::expert_matrix(std::string_view block, int64_t expert, std::string_view which,
                                         int64_t rows, int64_t cols) const {
  const bool is_draft = block.starts_with("mtp.");
  const int64_t experts = is_draft ? impl_->config.draft.routed_experts : impl_->config.routed_experts;
  if (expert < 0 || expert >= experts)
    return Error::invalid("{}: expert {}, expected 0 to {}", block, expert, experts - 1);
  const std::string bank = fmt::format("{}.ffn.experts.{}.weight", block, which);
  if (has_tensor(bank)) {
    const Request request{.name = bank, .rows = rows, .cols = cols, .bank = expert, .banks = experts};
    return MatrixReader(*impl_, request).read();
  }
  return matrix(fmt::format("{}.ffn.experts.{}.{}.weight", block, expert, which), rows, cols);
}

std::optional<bool> Pack::quantize_input(std::string_view official_name) const {
  const ModuleQuantization* said = impl_->module(module_of(official_name));
  if (said == nullptr) said = impl_->module(module_of(bank_of(official_name)));
  return said == nullptr ? std::nullopt : said->quantize_input;
}

std::optional<Pack::FileRange> Pack::locate(const std::byte* address) const {
  for (size_t file = 0; file < impl_->store.files.size(); ++file) {
    const std::span<const std::byte> bytes = impl_->store.files[file].bytes();
    if (address < bytes.data() || address >= bytes.data() + bytes.size()) continue;
    return FileRange{.file = static_cast<int>(file),
                     .offset_bytes = static_cast<uint64_t>(address - bytes.data())};
  }
  return std::nullopt;
}

}  // namespace fathom
