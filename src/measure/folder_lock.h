// One campaign at a time in a folder.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace fathom::measure {

/// Held while a campaign uses its folder; the system lets go of it with the process. kBusy when another has it.
class FolderLock {
 public:
  static Result<FolderLock> take(const std::string& folder);
  FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FolderLock();

 private:
  explicit FolderLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace fathom::measure
