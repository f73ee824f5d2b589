#include "measure/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fathom::measure {

Result<FolderLock> FolderLock::take(const std::string& folder) {
  const std::string path = folder + "/.lock";
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return Error::io("{}: cannot be written: {}", path, std::strerror(errno));
  FolderLock lock(descriptor);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0)
    return Error::busy("{}: another campaign is writing there", folder);
  return lock;
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace fathom::measure
