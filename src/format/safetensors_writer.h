// Writes a safetensors file, tensor after tensor.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "format/file_writer.h"
#include "tensor/dtype.h"

namespace fathom {

struct SafetensorsPlan {
  std::string name;
  DType type = DType::kF32;    // plain types only
  std::vector<int64_t> shape;  // outermost first
};

/// Length and header of a file, for who writes data at its place: the tensors follow without gaps. `where`
/// names the file in errors. Adding the 100,000 tensors of the release takes a second.
Result<std::string> safetensors_header(const std::string& where, const std::vector<SafetensorsPlan>& tensors,
                                       const std::map<std::string, std::string>& metadata = {});

/// The header is written first, so every tensor is planned before data is. write() takes the tensors' bytes
/// in planned order, in pieces of any size; finish() refuses a total that differs from the plan.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> create(const std::string& path,
                                          const std::vector<SafetensorsPlan>& tensors,
                                          const std::map<std::string, std::string>& metadata = {});
  Result<void> write(std::span<const std::byte> bytes) { return file_.append(bytes); }
  Result<void> finish();

 private:
  SafetensorsWriter(FileWriter file, uint64_t end_bytes) : file_(std::move(file)), end_bytes_(end_bytes) {}
  FileWriter file_;
  uint64_t end_bytes_;
};

}  // namespace fathom
