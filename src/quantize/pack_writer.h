// Writes the files of a pack under temporary names, tensor by tensor in any order, and gives them their names
// when everything is there. What was finished before an interruption is kept and not made again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "quantize/pack_layout.h"

namespace fathom {

struct PackWriterOptions {
  /// What the bytes depend on besides the layout: source, recipe, importance. A journal of another identity
  /// is refused.
  std::string identity;
  bool with_checksums = true;
  /// Throws away what an earlier run left instead of going on with it.
  bool restart = false;
  /// Finished tensors are noted once this many bytes lie behind them, and at the end: that is how much work
  /// an interruption can cost, besides the tensor under way.
  uint64_t journal_interval_bytes = uint64_t{64} << 20;
};

/// One thread at a time. Temporary files are "<name>.part", the journal is "<output>.journal" (in a folder
/// "pack.journal"); only commit() removes them. Errors: kIo for a full disk, also before anything is written,
/// kState when another run holds the journal or it belongs to other input, kInvalidArgument when the output
/// exists already.
class PackWriter {
 public:
  static Result<std::unique_ptr<PackWriter>> open(const PackPlan& plan, PackLayout layout,
                                                  const PackWriterOptions& options);
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  /// Whether an earlier run finished the tensor.
  bool is_done(size_t stored) const { return tensors_[stored].is_done; }
  uint64_t resumed_bytes() const { return resumed_bytes_; }

  /// The next bytes of a tensor; begun again from its start if it is not finished.
  Result<void> append(size_t stored, std::span<const std::byte> bytes);
  /// Leaves a hole of the tensor's size, which reads as zeros.
  Result<void> leave_hole(size_t stored);
  /// Ends a tensor. kState if bytes are missing.
  Result<void> finish(size_t stored);

  /// Needs every tensor finished. Syncs, writes the texts and the checksums, renames, removes the journal.
  Result<void> commit();
  /// The file with a line "SHA-256  tensor" for each tensor; empty without checksums.
  std::string checksum_path() const;

 private:
  struct Tensor {
    Sha256 hash;
    uint64_t written_bytes = 0;
    std::string checksum;  // hex, or "-"
    bool is_done = false;
  };
  PackWriter(const PackPlan& plan, PackLayout layout, const PackWriterOptions& options);
  std::string journal_path() const;
  std::string header_line() const;
  Result<void> check_absent() const;
  Result<void> open_journal();
  Result<void> read_journal(const std::string& text);
  Result<void> open_files();
  Result<void> check_space() const;
  bool is_hole(size_t stored) const;
  Result<void> write_at(size_t file, uint64_t offset, std::span<const std::byte> bytes);
  Result<void> note_finished();
  std::string checksum_list() const;

  const PackPlan& plan_;
  PackLayout layout_;
  PackWriterOptions options_;
  std::vector<Tensor> tensors_;
  std::vector<int> descriptors_;  // one for each file
  std::vector<size_t> unnoted_;   // finished tensors that the journal does not have yet
  uint64_t unnoted_bytes_ = 0;
  uint64_t resumed_bytes_ = 0;
  int journal_ = -1;
};

}  // namespace fathom
