#include "quantize/compare_packs.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/file.h"
#include "base/thread_pool.h"
#include "model/pack_names.h"
#include "model/tensor_shapes.h"

namespace fathom {
namespace {

constexpr int64_t kBlockValues = int64_t{1} << 18;
constexpr int64_t kTableRowsMax = 65536;

struct Sums {
  double aa = 0, bb = 0, ab = 0, dd = 0, largest = 0;
  int64_t values = 0, not_finite = 0;

  void add(const float* a, const float* b, int64_t count) {
    for (int64_t index = 0; index < count; ++index) {
      const double x = a[index], y = b[index];
      if (!std::isfinite(x) || !std::isfinite(y)) {
        not_finite += !(x == y || (std::isnan(x) && std::isnan(y)));
        continue;
      }
      const double difference = y - x;
      aa += x * x, bb += y * y, ab += x * y, dd += difference * difference;
      largest = std::max(largest, std::fabs(difference));
      ++values;
    }
  }
  void add(const Sums& other) {
    aa += other.aa, bb += other.bb, ab += other.ab, dd += other.dd;
    largest = std::max(largest, other.largest);
    values += other.values, not_finite += other.not_finite;
  }
  ValueError error() const {
    ValueError error{.values = values, .largest = largest, .not_finite = not_finite};
    if (dd > 0) {
      error.relative_rms = aa > 0 ? std::sqrt(dd / aa) : HUGE_VAL;
      error.cosine = aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
    }
    return error;
  }
};

struct MatrixPair {
  WeightMatrix a, b;
};

bool has(const Pack& pack, const TensorShape& shape) {
  if (pack.has_tensor(shape.name)) return true;
  if (shape.experts == 0) return false;
  std::string first = shape.name;  // "….experts.w1.weight" -> "….experts.0.w1.weight"
  first.insert(first.find(".experts.") + 9, "0.");
  return pack.has_tensor(first);
}

// Types of a bank's experts may differ.
void add_type(std::string& types, DType type) {
  const std::string name(dtype_name(type));
  if (types.empty())
    types = name;
  else if (types != name && types.find("mixed") == std::string::npos)
    types = "mixed, first " + types;
}

class Comparer {
 public:
  Comparer(const Pack& a, const Pack& b, const CompareOptions& options)
      : a_(a), b_(b), options_(options), pool_(options.thread_count) {
    buffers_.resize(static_cast<size_t>(pool_.thread_count()));
  }

  Result<PackComparison> run() {
    PackComparison result{.path_a = a_.files().front().path,
                          .path_b = b_.files().front().path,
                          .dialect_a = std::string(dialect_name(a_.dialect())),
                          .dialect_b = std::string(dialect_name(b_.dialect()))};
    const std::vector<TensorShape> wanted = shapes_of_both();
    std::set<std::string> known;
    int64_t done = 0;
    for (const TensorShape& shape : wanted) {
      const Progress now{.stage = "compare",
                         .unit = "tensors",
                         .done = done++,
                         .total = static_cast<int64_t>(wanted.size())};
      if (options_.progress && !options_.progress(now))
        return Error::cancelled("comparison cancelled after {} of {} tensors", now.done, now.total);
      known.insert(shape.name);
      const bool in_a = has(a_, shape), in_b = has(b_, shape);
      if (in_a && in_b)
        result.tensors.push_back(compare(shape));
      else if (in_a)
        result.only_a.push_back(shape.name);
      else if (in_b)
        result.only_b.push_back(shape.name);
    }
    compare_tables(result, known);
    compare_presence(result, known);
    if (result.tensors.empty() && result.only_a.empty() && result.only_b.empty())
      return Error::invalid("no tensor matches \"{}\"", options_.filter);
    return result;
  }

 private:
  bool is_wanted(const std::string& name) const {
    return options_.filter.empty() || fnmatch(options_.filter.c_str(), name.c_str(), 0) == 0;
  }

  // By the config of A, then what only that of B knows.
  std::vector<TensorShape> shapes_of_both() const {
    std::vector<TensorShape> shapes;
    std::set<std::string> names;
    for (const Pack* pack : {&a_, &b_})
      for (const auto& list : {backbone_shapes(pack->config()), draft_shapes(pack->config())})
        for (const TensorShape& shape : list)
          if (is_wanted(shape.name) && names.insert(shape.name).second) shapes.push_back(shape);
    return shapes;
  }

  TensorComparison compare(const TensorShape& shape) {
    TensorComparison result{.name = shape.name, .experts = shape.experts};
    const Result<void> compared =
        shape.is_vector ? compare_vector(shape, result) : compare_matrices(shape, result);
    if (!compared.ok()) result.problem = compared.error().message;
    return result;
  }

  Result<void> compare_vector(const TensorShape& shape, TensorComparison& result) {
    const int64_t count = shape.rows * shape.cols;
    FATHOM_ASSIGN(const std::vector<float> a, a_.vector(shape.name, count));
    FATHOM_ASSIGN(const std::vector<float> b, b_.vector(shape.name, count));
    result.type_a = stored_type(a_, shape.name, result.bytes_a);
    result.type_b = stored_type(b_, shape.name, result.bytes_b);
    Sums sums;
    sums.add(a.data(), b.data(), count);
    result.error = sums.error();
    return {};
  }

  static std::string stored_type(const Pack& pack, const std::string& name, int64_t& bytes) {
    for (const PackTensor& tensor : pack.tensors()) {
      if (tensor.name != name) continue;
      bytes = static_cast<int64_t>(tensor.size_bytes);
      return tensor.type_name;
    }
    return {};
  }

  static Result<WeightMatrix> matrix_of(const Pack& pack, const TensorShape& shape, int64_t expert) {
    if (shape.experts == 0) return pack.matrix(shape.name, shape.rows, shape.cols);
    const std::string block = shape.name.substr(0, shape.name.find(".ffn."));
    const std::string which = shape.name.substr(shape.name.find(".experts.") + 9, 2);
    return pack.expert_matrix(block, expert, which, shape.rows, shape.cols);
  }

  Result<void> compare_matrices(const TensorShape& shape, TensorComparison& result) {
    std::vector<MatrixPair> pairs;
    for (int64_t expert = 0; expert < std::max<int64_t>(shape.experts, 1); ++expert) {
      MatrixPair pair;
      FATHOM_ASSIGN(pair.a, matrix_of(a_, shape, expert));
      FATHOM_ASSIGN(pair.b, matrix_of(b_, shape, expert));
      add_type(result.type_a, pair.a.type);
      add_type(result.type_b, pair.b.type);
      result.bytes_a += weight_bytes(pair.a);
      result.bytes_b += weight_bytes(pair.b);
      pairs.push_back(pair);
    }
    const std::vector<Sums> sums = sums_of(pairs, shape);
    Sums all;
    for (size_t which = 0; which < sums.size(); ++which) {
      all.add(sums[which]);
      const ValueError error = sums[which].error();
      if (shape.experts == 0 ||
          (result.worst_expert >= 0 && error.relative_rms <= result.worst_error.relative_rms))
        continue;
      result.worst_expert = static_cast<int64_t>(which);
      result.worst_error = error;
    }
    result.error = all.error();
    return {};
  }

  // One task a block of rows. Blocks are added up in their order, whichever thread made them.
  std::vector<Sums> sums_of(const std::vector<MatrixPair>& pairs, const TensorShape& shape) {
    const int64_t block_rows = std::max<int64_t>(1, kBlockValues / shape.cols);
    const int64_t blocks = (shape.rows + block_rows - 1) / block_rows;
    std::vector<Sums> parts(pairs.size() * static_cast<size_t>(blocks));
    pool_.run(static_cast<int64_t>(parts.size()), [&](int64_t index, int thread) {
      const MatrixPair& pair = pairs[static_cast<size_t>(index / blocks)];
      std::vector<float>& buffer = buffers_[static_cast<size_t>(thread)];
      buffer.resize(2 * static_cast<size_t>(shape.cols));
      float* a = buffer.data();
      float* b = a + shape.cols;
      const int64_t begin = index % blocks * block_rows, end = std::min(shape.rows, begin + block_rows);
      for (int64_t row = begin; row < end; ++row) {
        decode_row(pair.a, row, a);
        decode_row(pair.b, row, b);
        parts[static_cast<size_t>(index)].add(a, b, shape.cols);
      }
    });
    std::vector<Sums> sums(pairs.size());
    for (size_t index = 0; index < parts.size(); ++index)
      sums[index / static_cast<size_t>(blocks)].add(parts[index]);
    return sums;
  }

  // ---- Engram tables: files of their own size, of which a sample is read ----

  void compare_tables(PackComparison& result, std::set<std::string>& known) {
    for (const int layer : a_.config().engram.layer_ids) {
      const std::string name = fmt::format("layers.{}.engram.embed.weight", layer);
      if (!is_wanted(name) || !a_.has_tensor(name) || !b_.has_tensor(name)) continue;
      known.insert(name);
      TensorComparison table{.name = name};
      if (const auto compared = compare_table(layer, table); !compared.ok())
        table.problem = compared.error().message;
      result.tensors.push_back(std::move(table));
    }
  }

  class TableRows {
   public:
    static Result<TableRows> open(EngramTableInfo info) {
      TableRows rows;
      for (const TableArray* array : {&info.data, &info.scales, &info.biases}) {
        if (array->row_bytes == 0) continue;
        FATHOM_ASSIGN(RandomAccessFile file, RandomAccessFile::open(array->path));
        rows.files_.push_back({*array, std::move(file), std::vector<std::byte>(array->row_bytes)});
      }
      rows.info_ = std::move(info);
      return rows;
    }
    int64_t bytes() const {
      uint64_t row = 0;
      for (const Part& part : files_) row += part.array.row_bytes;
      return static_cast<int64_t>(row) * info_.rows;
    }
    Result<void> read(int64_t row, std::vector<float>& out) {
      for (Part& part : files_)
        FATHOM_TRY(part.file.read_at(
            part.array.offset_bytes + static_cast<uint64_t>(row) * part.array.stride_bytes, part.bytes));
      const auto bytes_of = [&](size_t part) {
        return part < files_.size() ? files_[part].bytes.data() : nullptr;
      };
      const WeightMatrix weight{.type = info_.type,
                                .rows = 1,
                                .cols = info_.width,
                                .data = bytes_of(0),
                                .scales = bytes_of(1),
                                .biases = bytes_of(2),
                                .scale_type = info_.scale_type,
                                .bits = info_.bits,
                                .group = info_.group};
      out.resize(static_cast<size_t>(info_.width));
      decode_row(weight, 0, out.data());
      return {};
    }

   private:
    struct Part {
      TableArray array;
      RandomAccessFile file;
      std::vector<std::byte> bytes;
    };
    EngramTableInfo info_;
    std::vector<Part> files_;
  };

  Result<void> compare_table(int layer, TensorComparison& result) {
    FATHOM_ASSIGN(EngramTableInfo info_a, a_.engram_table(layer));
    FATHOM_ASSIGN(EngramTableInfo info_b, b_.engram_table(layer));
    if (info_a.rows != info_b.rows || info_a.width != info_b.width)
      return Error::bad_pack("{} rows of {} against {} rows of {}", info_a.rows, info_a.width, info_b.rows,
                             info_b.width);
    add_type(result.type_a, info_a.type);
    add_type(result.type_b, info_b.type);
    const int64_t rows = info_a.rows, samples = std::min(rows, kTableRowsMax);
    FATHOM_ASSIGN(TableRows table_a, TableRows::open(std::move(info_a)));
    FATHOM_ASSIGN(TableRows table_b, TableRows::open(std::move(info_b)));
    result.bytes_a = table_a.bytes();
    result.bytes_b = table_b.bytes();
    std::vector<float> a, b;
    Sums sums;
    for (int64_t sample = 0; sample < samples; ++sample) {
      const int64_t row = rows == samples ? sample : sample * (rows / samples);
      FATHOM_TRY(table_a.read(row, a));
      FATHOM_TRY(table_b.read(row, b));
      sums.add(a.data(), b.data(), static_cast<int64_t>(a.size()));
    }
    result.error = sums.error();
    if (samples < rows) result.sampled_rows = samples;
    return {};
  }

  // ---- What is left: vision and strangers, by name ----

  void compare_presence(PackComparison& result, const std::set<std::string>& known) const {
    const auto names_of = [&](const Pack& pack) {
      std::set<std::string> names;
      for (const PackTensor& tensor : pack.tensors()) {
        const std::string bank = bank_of(tensor.name);
        const std::string& name = bank.empty() ? tensor.name : bank;
        // Scales are part of the matrix they belong to.
        const bool is_companion =
            name.ends_with(".scale") || name.ends_with(".scales") || name.ends_with(".biases");
        if (!is_companion && !known.contains(name) && is_wanted(name)) names.insert(name);
      }
      return names;
    };
    const std::set<std::string> in_a = names_of(a_), in_b = names_of(b_);
    std::ranges::set_difference(in_a, in_b, std::back_inserter(result.only_a));
    std::ranges::set_difference(in_b, in_a, std::back_inserter(result.only_b));
  }

  const Pack& a_;
  const Pack& b_;
  const CompareOptions& options_;
  ThreadPool pool_;
  std::vector<std::vector<float>> buffers_;  // one a thread
};

}  // namespace

Result<PackComparison> compare_packs(const Pack& a, const Pack& b, const CompareOptions& options) {
  return Comparer(a, b, options).run();
}

}  // namespace fathom
