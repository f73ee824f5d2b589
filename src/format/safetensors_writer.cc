#include "format/safetensors_writer.h"

#include <nlohmann/json.hpp>

#include "format/tensor_file.h"

namespace fathom {

Result<std::string> safetensors_header(const std::string& where, const std::vector<SafetensorsPlan>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t end = 0;
  for (const SafetensorsPlan& tensor : tensors) {
    const std::optional<uint64_t> size = tensor_bytes(tensor.type, tensor.shape);
    if (!size || dtype_from_safetensors(dtype_name(tensor.type)) != tensor.type)
      return Error::invalid("{}: tensor {}: {} {} cannot be stored in safetensors", where, tensor.name,
                            dtype_name(tensor.type), shape_text(tensor.shape));
    header[tensor.name] = {{"dtype", std::string(dtype_name(tensor.type))},
                           {"shape", tensor.shape},
                           {"data_offsets", {end, end + *size}}};
    end += *size;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');  // data then begins at a multiple of 8
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    const std::vector<SafetensorsPlan>& tensors,
                                                    const std::map<std::string, std::string>& metadata) {
  FATHOM_ASSIGN(const std::string header, safetensors_header(path, tensors, metadata));
  FATHOM_ASSIGN(FileWriter file, FileWriter::create(path));
  FATHOM_TRY(file.append(std::as_bytes(std::span(header))));
  uint64_t end_bytes = file.position();
  for (const SafetensorsPlan& tensor : tensors) end_bytes += tensor_bytes(tensor.type, tensor.shape).value_or(0);
  return SafetensorsWriter(std::move(file), end_bytes);
}

Result<void> SafetensorsWriter::finish() {
  if (file_.position() != end_bytes_)
    return Error::state("{}: {} bytes were written, the plan says {}", file_.path(), file_.position(),
                        end_bytes_);
  return file_.commit();
}

}  // namespace fathom
