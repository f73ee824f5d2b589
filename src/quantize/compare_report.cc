#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "quantize/compare_packs.h"

namespace fathom {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const ValueError& error) {
  Json json = {{"values", error.values},
               {"relative_rms", error.relative_rms},
               {"largest", error.largest},
               {"cosine", error.cosine}};
  if (error.not_finite > 0) json["not_finite"] = error.not_finite;
  return json;
}

std::string numbers(const ValueError& error) {
  std::string text =
      fmt::format("{:<10.4g} {:<10.4g} {:.6f}", error.relative_rms, error.largest, error.cosine);
  if (error.not_finite > 0) text += fmt::format("  {} values not finite", error.not_finite);
  return text;
}

// "layers.3.attn.wq_a.weight" -> "attn.wq_a.weight": what is alike in all layers.
std::string kind_of(const std::string& name) {
  if (!name.starts_with("layers.") && !name.starts_with("mtp.")) return name;
  const size_t number = name.find('.') + 1;
  return name.substr(name.find('.', number) + 1);
}

void add_list(std::string& text, const std::string& title, const std::vector<std::string>& names) {
  if (names.empty()) return;
  text += fmt::format("\n{} ({}):\n", title, names.size());
  for (const std::string& name : names) text += fmt::format("  {}\n", name);
}

}  // namespace

std::string comparison_text(const PackComparison& comparison) {
  std::string text = fmt::format("A  {} ({})\nB  {} ({})\n\n", comparison.path_a, comparison.dialect_a,
                                 comparison.path_b, comparison.dialect_b);
  size_t width = 6;
  for (const TensorComparison& tensor : comparison.tensors) width = std::max(width, tensor.name.size());
  text += fmt::format("{:<{}}  {:<18} {:<18} {:>14} {:>14}  {:<10} {:<10} cosine\n", "tensor", width,
                      "type A", "type B", "bytes A", "bytes B", "rel. RMS", "max error");
  int64_t bytes_a = 0, bytes_b = 0;
  std::map<std::string, const TensorComparison*> worst;
  for (const TensorComparison& tensor : comparison.tensors) {
    if (!tensor.problem.empty()) {
      text += fmt::format("{:<{}}  not compared: {}\n", tensor.name, width, tensor.problem);
      continue;
    }
    bytes_a += tensor.bytes_a, bytes_b += tensor.bytes_b;
    text += fmt::format("{:<{}}  {:<18} {:<18} {:>14} {:>14}  {}", tensor.name, width, tensor.type_a,
                        tensor.type_b, tensor.bytes_a, tensor.bytes_b, numbers(tensor.error));
    if (tensor.worst_expert >= 0)
      text += fmt::format("  worst: expert {}, {:.4g}", tensor.worst_expert, tensor.worst_error.relative_rms);
    if (tensor.sampled_rows > 0) text += fmt::format("  {} rows sampled", tensor.sampled_rows);
    text += '\n';
    const TensorComparison*& known = worst[kind_of(tensor.name)];
    if (known == nullptr || tensor.error.relative_rms > known->error.relative_rms) known = &tensor;
  }
  text += fmt::format("\n{} tensors, {} bytes in A, {} in B\n", comparison.tensors.size(), bytes_a, bytes_b);
  text += "\nWorst of each kind, by relative RMS error:\n";
  for (const auto& [kind, tensor] : worst)
    text += fmt::format("  {:<32} {:<10.4g} {}\n", kind, tensor->error.relative_rms, tensor->name);
  add_list(text, "Only in A", comparison.only_a);
  add_list(text, "Only in B", comparison.only_b);
  return text;
}

std::string comparison_json(const PackComparison& comparison) {
  Json tensors = Json::array();
  for (const TensorComparison& tensor : comparison.tensors) {
    Json json = {{"name", tensor.name}};
    if (!tensor.problem.empty()) {
      json["problem"] = tensor.problem;
      tensors.push_back(std::move(json));
      continue;
    }
    json["type_a"] = tensor.type_a;
    json["type_b"] = tensor.type_b;
    json["bytes_a"] = tensor.bytes_a;
    json["bytes_b"] = tensor.bytes_b;
    json["error"] = to_json(tensor.error);
    if (tensor.experts > 0) json["experts"] = tensor.experts;
    if (tensor.worst_expert >= 0)
      json["worst"] = {{"expert", tensor.worst_expert}, {"error", to_json(tensor.worst_error)}};
    if (tensor.sampled_rows > 0) json["sampled_rows"] = tensor.sampled_rows;
    tensors.push_back(std::move(json));
  }
  const Json json = {{"a", {{"path", comparison.path_a}, {"dialect", comparison.dialect_a}}},
                     {"b", {{"path", comparison.path_b}, {"dialect", comparison.dialect_b}}},
                     {"tensors", std::move(tensors)},
                     {"only_a", comparison.only_a},
                     {"only_b", comparison.only_b}};
  // Names come from files and may hold anything.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fathom
