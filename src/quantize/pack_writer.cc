#include "quantize/pack_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kNoChecksum = "-";

std::string part_of(const std::string& path) { return path + ".part"; }

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Error write_error(const std::string& path) {
  const int reason = errno;
  if (reason == ENOSPC || reason == EDQUOT)
    return Error::io(
        "{}: the disk is full; what is finished is kept, the same command goes on once there is room", path);
  return Error::io("{}: cannot write: {}", path, std::strerror(reason));
}

Result<void> write_all(int descriptor, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(descriptor, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return write_error(path);
    text.remove_prefix(static_cast<size_t>(wrote));
  }
  return {};
}

}  // namespace

PackWriter::PackWriter(const PackPlan& plan, PackLayout layout, const PackWriterOptions& options)
    : plan_(plan), layout_(std::move(layout)), options_(options), tensors_(plan.stored.size()) {}

PackWriter::~PackWriter() {
  if (journal_ >= 0) [[maybe_unused]]
    const bool noted = note_finished().ok();  // a courtesy: what is not noted is made again
  for (const int descriptor : descriptors_)
    if (descriptor >= 0) ::close(descriptor);
  if (journal_ >= 0) ::close(journal_);
}

Result<std::unique_ptr<PackWriter>> PackWriter::open(const PackPlan& plan, PackLayout layout,
                                                     const PackWriterOptions& options) {
  std::unique_ptr<PackWriter> writer(new PackWriter(plan, std::move(layout), options));
  if (options.restart || !file_exists(writer->journal_path())) FATHOM_TRY(writer->check_absent());
  if (writer->layout_.is_folder) {
    std::error_code code;
    fs::create_directories(writer->layout_.output, code);
    if (code) return Error::io("{}: cannot create: {}", writer->layout_.output, code.message());
  }
  FATHOM_TRY(writer->open_journal());
  FATHOM_TRY(writer->open_files());
  FATHOM_TRY(writer->check_space());
  return writer;
}

std::string PackWriter::journal_path() const {
  return layout_.is_folder ? (fs::path(layout_.output) / "pack.journal").string()
                           : layout_.output + ".journal";
}

std::string PackWriter::checksum_path() const {
  if (!options_.with_checksums) return {};
  return layout_.is_folder ? (fs::path(layout_.output) / "tensors.sha256").string()
                           : layout_.output + ".sha256";
}

Result<void> PackWriter::check_absent() const {
  for (const PackFileLayout& file : layout_.files)
    if (file_exists(file.path)) return Error::invalid("{}: exists already", file.path);
  for (const auto& [path, text] : layout_.texts)
    if (file_exists(path)) return Error::invalid("{}: exists already", path);
  return {};
}

std::string PackWriter::header_line() const {
  Sha256 hash;
  for (const PackFileLayout& file : layout_.files) hash.update(bytes_of(file.header));
  for (const auto& [path, text] : layout_.texts) hash.update(bytes_of(text));
  hash.update(bytes_of(options_.identity));
  return fmt::format("fathom pack journal 1 {}\n", hex_string(hash.finish()));
}

Result<void> PackWriter::open_journal() {
  const std::string path = journal_path();
  journal_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (journal_ < 0) return Error::io("{}: cannot create: {}", path, std::strerror(errno));
  if (::flock(journal_, LOCK_EX | LOCK_NB) != 0) {
    ::close(std::exchange(journal_, -1));
    return Error::state("{}: another run is writing this pack", path);
  }
  const std::string header = header_line();
  if (!options_.restart) {
    FATHOM_ASSIGN(const std::string text, read_text_file(path, uint64_t{1} << 30));
    if (text.starts_with(header)) return read_journal(text.substr(header.size()));
    if (!text.empty() && text.find('\n') != std::string::npos)
      return Error::state(
          "{}: an unfinished run of other input or options left it; --restart discards that run", path);
  }
  for (const PackFileLayout& file : layout_.files) ::unlink(part_of(file.path).c_str());
  if (::ftruncate(journal_, 0) != 0) return write_error(path);
  return write_all(journal_, path, header);
}

bool PackWriter::is_hole(size_t stored) const {
  return std::any_of(plan_.units.begin(), plan_.units.end(), [&](const PlannedUnit& unit) {
    return unit.is_hole && (unit.values == stored || unit.scales == stored);
  });
}

// A line is "checksum number name". The last one may be torn: it then counts for nothing.
Result<void> PackWriter::read_journal(const std::string& text) {
  size_t position = 0;
  for (size_t end; (end = text.find('\n', position)) != std::string::npos; position = end + 1) {
    const std::string_view line(text.data() + position, end - position);
    const size_t first = line.find(' ');
    const size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
    size_t stored = tensors_.size();
    if (second != std::string_view::npos)
      std::from_chars(line.data() + first + 1, line.data() + second, stored);
    if (stored >= tensors_.size() || line.substr(second + 1) != plan_.stored[stored].name)
      return Error::state("{}: the line \"{}\" names no tensor of this pack; --restart discards that run",
                          journal_path(), line.substr(0, 200));
    tensors_[stored].checksum = line.substr(0, first);
    tensors_[stored].is_done = true;
    if (!is_hole(stored)) resumed_bytes_ += plan_.stored[stored].bytes;
  }
  const size_t torn = text.size() - position;
  if (torn == 0) return {};
  struct stat info{};
  if (::fstat(journal_, &info) != 0 || ::ftruncate(journal_, info.st_size - static_cast<off_t>(torn)) != 0)
    return write_error(journal_path());
  return {};
}

Result<void> PackWriter::open_files() {
  for (size_t file = 0; file < layout_.files.size(); ++file) {
    const std::string path = part_of(layout_.files[file].path);
    // The earlier run was interrupted while it gave the files their names.
    if (!file_exists(path) && file_exists(layout_.files[file].path))
      ::rename(layout_.files[file].path.c_str(), path.c_str());
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0) return Error::io("{}: cannot create: {}", path, std::strerror(errno));
    descriptors_.push_back(descriptor);
    FATHOM_TRY(write_at(file, 0, bytes_of(layout_.files[file].header)));
  }
  return {};
}

// Better told now than after hours. Holes need no room, so packs with holes are not looked at.
Result<void> PackWriter::check_space() const {
  uint64_t missing = 0;
  for (size_t file = 0; file < layout_.files.size(); ++file) {
    struct stat info{};
    if (::fstat(descriptors_[file], &info) != 0 || !S_ISREG(info.st_mode)) return {};
    const uint64_t allocated = static_cast<uint64_t>(info.st_blocks) * 512;
    missing += layout_.files[file].size_bytes - std::min(layout_.files[file].size_bytes, allocated);
  }
  for (const PlannedUnit& unit : plan_.units)
    if (unit.is_hole) missing -= std::min(missing, plan_.unit_bytes(unit));
  struct statvfs disk{};
  if (::fstatvfs(journal_, &disk) != 0) return {};
  const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (missing <= free_bytes) return {};
  return Error::io("{}: {:.1f} GB are still to be written, the disk has {:.1f} GB free", layout_.output,
                   static_cast<double>(missing) / 1e9, static_cast<double>(free_bytes) / 1e9);
}

Result<void> PackWriter::write_at(size_t file, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote =
        ::pwrite(descriptors_[file], bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return write_error(part_of(layout_.files[file].path));
    bytes = bytes.subspan(static_cast<size_t>(wrote));
    offset += static_cast<uint64_t>(wrote);
  }
  return {};
}

Result<void> PackWriter::append(size_t stored, std::span<const std::byte> bytes) {
  Tensor& tensor = tensors_[stored];
  const PlacedTensor& place = layout_.placed[stored];
  FATHOM_CHECK(!tensor.is_done && tensor.written_bytes + bytes.size() <= plan_.stored[stored].bytes,
               "tensor {} gets too many bytes", plan_.stored[stored].name);
  FATHOM_TRY(write_at(place.file, place.offset_bytes + tensor.written_bytes, bytes));
  if (options_.with_checksums) tensor.hash.update(bytes);
  tensor.written_bytes += bytes.size();
  return {};
}

Result<void> PackWriter::leave_hole(size_t stored) {
  tensors_[stored].written_bytes = plan_.stored[stored].bytes;
  tensors_[stored].checksum = kNoChecksum;
  return finish(stored);
}

Result<void> PackWriter::finish(size_t stored) {
  Tensor& tensor = tensors_[stored];
  if (tensor.written_bytes != plan_.stored[stored].bytes)
    return Error::state("tensor {}: {} bytes were made, the plan says {}", plan_.stored[stored].name,
                        tensor.written_bytes, plan_.stored[stored].bytes);
  // Written rather than left out: a file with holes looks like a copy that lacks something.
  const PlacedTensor& place = layout_.placed[stored];
  const std::vector<std::byte> zeros(place.padding_bytes);
  FATHOM_TRY(write_at(place.file, place.offset_bytes + tensor.written_bytes, zeros));
  tensor.is_done = true;
  if (tensor.checksum.empty())
    tensor.checksum = options_.with_checksums ? hex_string(tensor.hash.finish()) : std::string(kNoChecksum);
  unnoted_.push_back(stored);
  unnoted_bytes_ += tensor.written_bytes;
  return unnoted_bytes_ < options_.journal_interval_bytes ? Result<void>() : note_finished();
}

// Data must be on the disk before the journal says so.
Result<void> PackWriter::note_finished() {
  if (unnoted_.empty()) return {};
  std::string lines;
  std::vector<bool> is_touched(descriptors_.size());
  for (const size_t stored : unnoted_) {
    lines += fmt::format("{} {} {}\n", tensors_[stored].checksum, stored, plan_.stored[stored].name);
    is_touched[layout_.placed[stored].file] = true;
  }
  for (size_t file = 0; file < descriptors_.size(); ++file)
    if (is_touched[file] && ::fdatasync(descriptors_[file]) != 0 && errno != EINVAL)
      return write_error(part_of(layout_.files[file].path));
  FATHOM_TRY(write_all(journal_, journal_path(), lines));
  unnoted_.clear();
  unnoted_bytes_ = 0;
  return {};
}

std::string PackWriter::checksum_list() const {
  std::string list;
  for (size_t stored = 0; stored < tensors_.size(); ++stored)
    list += fmt::format("{}  {}\n", tensors_[stored].checksum, plan_.stored[stored].name);
  return list;
}

Result<void> PackWriter::commit() {
  for (size_t stored = 0; stored < tensors_.size(); ++stored)
    if (!tensors_[stored].is_done)
      return Error::state("{}: tensor {} is missing", layout_.output, plan_.stored[stored].name);
  FATHOM_TRY(note_finished());
  for (size_t file = 0; file < descriptors_.size(); ++file) {
    const PackFileLayout& layout = layout_.files[file];
    const std::string part = part_of(layout.path);
    // Holes may be at the end.
    if (::ftruncate(descriptors_[file], static_cast<off_t>(layout.size_bytes)) != 0) return write_error(part);
    if (::fsync(descriptors_[file]) != 0) return write_error(part);
  }
  if (const std::string path = checksum_path(); !path.empty()) {
    const std::string list = checksum_list();
    const std::span<const std::byte> parts[] = {bytes_of(list)};
    FATHOM_TRY(write_file_atomically(path, parts));
  }
  for (size_t file = layout_.files.size(); file-- > 0;) {
    const std::string& path = layout_.files[file].path;
    if (::rename(part_of(path).c_str(), path.c_str()) != 0)
      return Error::io("{}: cannot rename to {}: {}", part_of(path), path, std::strerror(errno));
  }
  for (const auto& [path, text] : layout_.texts) {
    const std::span<const std::byte> parts[] = {bytes_of(text)};
    FATHOM_TRY(write_file_atomically(path, parts));
  }
  ::unlink(journal_path().c_str());
  return {};
}

}  // namespace fathom
