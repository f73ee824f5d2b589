// A file of predictions: the distribution after every token of a text, for comparing models that are not
// there at the same time. docs/formats/reference_logits.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "base/sha256.h"
#include "format/file_writer.h"

namespace fathom {

struct ReferenceHeader {
  int32_t vocab_size = 0;
  int64_t rows = 0;
  std::array<uint8_t, 32> model{};  // fingerprint of the weights that made it
  std::array<uint8_t, 32> text{};   // of token ids and windows
};

/// Rows of 16-bit codes below the most likely token's log-probability, evenly spaced over the row's range or
/// its uppermost 40 nats; what lies lower is put at 40. The spacing is at most 6.2e-4 nats, which makes the
/// mean KL divergence of a model from its own file about 1e-8.
class ReferenceWriter {
 public:
  static Result<ReferenceWriter> create(const std::string& path, const ReferenceHeader& header);
  /// The next row: logits [vocab_size], finite.
  Result<void> add(std::span<const float> logits);
  /// Appends the checksum and gives the file its name; kState while rows are missing.
  Result<void> finish();

 private:
  ReferenceWriter(FileWriter file, const ReferenceHeader& header) : file_(std::move(file)), header_(header) {}
  Result<void> append(std::span<const std::byte> bytes);

  FileWriter file_;
  ReferenceHeader header_;
  Sha256 checksum_;
  int64_t rows_ = 0;
  std::vector<std::byte> row_;
};

/// Maps a file and checks all of it, checksum included: kBadPack names what is wrong.
class ReferenceReader {
 public:
  static Result<ReferenceReader> open(const std::string& path);
  const ReferenceHeader& header() const { return header_; }
  const std::string& path() const { return file_.path(); }
  /// Log-probabilities of row `row` in [0, rows) -> out [vocab_size].
  void read(int64_t row, std::span<float> out) const;

 private:
  ReferenceReader(MappedFile file, const ReferenceHeader& header) : file_(std::move(file)), header_(header) {}
  MappedFile file_;
  ReferenceHeader header_;
};

}  // namespace fathom
