// What a pack should hold against what it holds.
#include <algorithm>
#include <unordered_set>

#include "model/pack_impl.h"
#include "model/pack_names.h"

namespace fathom {
namespace {

// Scales that the type of a stored matrix needs beside it.
std::string needed_companion(const TensorEntry& tensor, std::string_view official_name, PackDialect dialect) {
  const bool is_gguf = dialect == PackDialect::kDs4Gguf || dialect == PackDialect::kLlamaCppGguf;
  if (is_gguf || !tensor.type) return {};
  const DType type = *tensor.type;
  const bool is_official = type == DType::kF8E4M3 || type == DType::kI8;
  if (!is_official && type != DType::kU32) return {};
  return fmt::format("{}{}", module_of(official_name), is_official ? ".scale" : ".scales");
}

class Auditor {
 public:
  explicit Auditor(const Pack::Impl& pack) : pack_(pack) {}

  PackAudit run() {
    PackAudit audit;
    for (const auto& [name, index] : pack_.by_name) {
      audit.has_draft |= is_draft_tensor(name);
      audit.has_vision |= is_vision_tensor(name);
    }
    add(expected_backbone(pack_.config), true, audit);
    add(expected_draft(pack_.config), audit.has_draft, audit);
    add(expected_vision(pack_.config), audit.has_vision, audit);
    for (const PackTensor& tensor : pack_.tensors) {
      if (!known_.contains(std::string(module_of(tensor.name))))
        audit.unexpected.push_back(tensor.stored_name);
    }
    return audit;
  }

 private:
  void add(const std::vector<ExpectedTensor>& list, bool required, PackAudit& audit) {
    for (const ExpectedTensor& expected : list) {
      const std::string bank = bank_of(expected.name);
      const bool in_bank = !bank.empty() && pack_.find(bank) != nullptr;
      const std::string& name = in_bank ? bank : expected.name;
      const bool is_new = known_.insert(std::string(module_of(name))).second;
      if (!required || !is_new) continue;
      const TensorEntry* tensor = pack_.find(name);
      // Tables may be somewhere else altogether.
      if (tensor == nullptr && pack_.table_pack && name.ends_with(".engram.embed.weight")) continue;
      if (tensor == nullptr) {
        // The bias for image rows is read only where there is a vision tower.
        if (!expected.optional || audit.has_vision) audit.missing.push_back(name);
        continue;
      }
      const std::string companion = needed_companion(*tensor, name, pack_.dialect);
      if (!companion.empty() && pack_.find(companion) == nullptr) audit.missing.push_back(companion);
    }
  }

  const Pack::Impl& pack_;
  std::unordered_set<std::string> known_;  // modules that are expected, required or not
};

}  // namespace

PackAudit Pack::audit() const { return Auditor(*impl_).run(); }

Result<void> Pack::check_complete() const {
  constexpr size_t kShown = 5;
  const PackAudit found = audit();
  if (found.missing.empty()) return {};
  std::string names;
  for (size_t i = 0; i < std::min(kShown, found.missing.size()); ++i)
    names += (i == 0 ? "" : ", ") + found.missing[i];
  return Error::bad_pack("{}: {} tensors are missing: {}{}", impl_->files.front().path, found.missing.size(),
                         names, found.missing.size() > kShown ? ", ..." : "");
}

}  // namespace fathom
