#include "quantize/reference_logits.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fathom {
namespace {

constexpr char kMagic[8] = {'F', 'T', 'H', 'M', 'R', 'E', 'F', '1'};
constexpr double kRangeNats = 40;
constexpr int32_t kVocabMost = 1 << 24;

// As it lies in the file, little-endian, without padding.
struct StoredHeader {
  char magic[8];
  uint32_t vocab_size;
  uint32_t zero;
  uint64_t rows;
  uint8_t model[32];
  uint8_t text[32];
};
static_assert(sizeof(StoredHeader) == 88);

struct RowScale {
  float highest;  // log-probability of code 0
  float step;     // between codes, nats
};

uint64_t row_bytes(int32_t vocab_size) {
  return sizeof(RowScale) + uint64_t{2} * static_cast<uint32_t>(vocab_size);
}

}  // namespace

Result<ReferenceWriter> ReferenceWriter::create(const std::string& path, const ReferenceHeader& header) {
  FATHOM_ASSIGN(FileWriter file, FileWriter::create(path));
  ReferenceWriter writer(std::move(file), header);
  StoredHeader stored{};
  std::copy(std::begin(kMagic), std::end(kMagic), stored.magic);
  stored.vocab_size = static_cast<uint32_t>(header.vocab_size);
  stored.rows = static_cast<uint64_t>(header.rows);
  std::copy(header.model.begin(), header.model.end(), stored.model);
  std::copy(header.text.begin(), header.text.end(), stored.text);
  FATHOM_TRY(writer.append(std::as_bytes(std::span(&stored, 1))));
  return writer;
}

Result<void> ReferenceWriter::append(std::span<const std::byte> bytes) {
  checksum_.update(bytes);
  return file_.append(bytes);
}

Result<void> ReferenceWriter::add(std::span<const float> logits) {
  if (logits.size() != static_cast<size_t>(header_.vocab_size) || rows_ == header_.rows)
    return Error::state("{}: row {} of {} logits, expected {} rows of {}", file_.path(), rows_, logits.size(),
                        header_.rows, header_.vocab_size);
  const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
  const double largest = *high;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double step = std::min(largest - static_cast<double>(*low), kRangeNats) / 65535;
  const RowScale scale{.highest = static_cast<float>(-std::log(sum)), .step = static_cast<float>(step)};
  row_.resize(row_bytes(header_.vocab_size));
  std::memcpy(row_.data(), &scale, sizeof scale);
  std::byte* codes = row_.data() + sizeof scale;
  for (const float logit : logits) {
    const double code =
        step == 0 ? 0 : (largest - static_cast<double>(logit)) / static_cast<double>(scale.step);
    const auto stored = static_cast<uint16_t>(std::min(std::round(code), 65535.0));
    std::memcpy(codes, &stored, sizeof stored);
    codes += sizeof stored;
  }
  ++rows_;
  return append(row_);
}

Result<void> ReferenceWriter::finish() {
  if (rows_ != header_.rows)
    return Error::state("{}: {} rows were written, expected {}", file_.path(), rows_, header_.rows);
  const std::array<uint8_t, 32> checksum = checksum_.finish();
  FATHOM_TRY(file_.append(std::as_bytes(std::span(checksum))));
  return file_.commit();
}

Result<ReferenceReader> ReferenceReader::open(const std::string& path) {
  FATHOM_ASSIGN(MappedFile file, MappedFile::open(path));
  const std::span<const std::byte> bytes = file.bytes();
  StoredHeader stored;
  if (bytes.size() < sizeof stored + 32 || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    return Error::bad_pack("{}: expected a file of reference logits", path);
  std::memcpy(&stored, bytes.data(), sizeof stored);
  if (stored.vocab_size < 1 || stored.vocab_size > static_cast<uint32_t>(kVocabMost) || stored.zero != 0)
    return Error::bad_pack("{}: vocabulary of {}, expected 1 to {}", path, stored.vocab_size, kVocabMost);
  ReferenceHeader header{.vocab_size = static_cast<int32_t>(stored.vocab_size),
                         .rows = static_cast<int64_t>(stored.rows)};
  const uint64_t body = bytes.size() - sizeof stored - 32, row = row_bytes(header.vocab_size);
  if (body % row != 0 || body / row != stored.rows)
    return Error::bad_pack("{}: {} bytes, expected {} rows of {}: it is cut off or damaged", path,
                           bytes.size(), stored.rows, row);
  Sha256 checksum;
  checksum.update(bytes.first(bytes.size() - 32));
  const std::array<uint8_t, 32> found = checksum.finish();
  if (std::memcmp(found.data(), bytes.data() + bytes.size() - 32, 32) != 0)
    return Error::bad_pack("{}: the checksum does not match: the file is damaged", path);
  std::copy(std::begin(stored.model), std::end(stored.model), header.model.begin());
  std::copy(std::begin(stored.text), std::end(stored.text), header.text.begin());
  return ReferenceReader(std::move(file), header);
}

void ReferenceReader::read(int64_t row, std::span<float> out) const {
  const std::byte* bytes = file_.bytes().data() + sizeof(StoredHeader) +
                           static_cast<uint64_t>(row) * row_bytes(header_.vocab_size);
  RowScale scale;
  std::memcpy(&scale, bytes, sizeof scale);
  const std::byte* codes = bytes + sizeof scale;
  for (float& value : out) {
    uint16_t code;
    std::memcpy(&code, codes, sizeof code);
    codes += sizeof code;
    value = scale.highest - scale.step * static_cast<float>(code);
  }
}

}  // namespace fathom
