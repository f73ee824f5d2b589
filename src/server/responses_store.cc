#include "server/responses_store.h"

namespace fathom {

void ResponseStore::remove(std::list<Entry>::iterator entry) {
  bytes_ -= entry->bytes;
  index_.erase(entry->id);
  entries_.erase(entry);
}

void ResponseStore::put(const std::string& id, StoredResponse response) {
  const size_t bytes = id.size() + response.response.size() + response.messages.size();
  const std::lock_guard lock(mutex_);
  if (const auto known = index_.find(id); known != index_.end()) remove(known->second);
  if (bytes > bytes_max_ || count_max_ == 0) return;
  while (bytes_ + bytes > bytes_max_ || entries_.size() >= count_max_) remove(entries_.begin());
  entries_.push_back({id, std::make_shared<const StoredResponse>(std::move(response)), bytes});
  index_[id] = std::prev(entries_.end());
  bytes_ += bytes;
}

std::shared_ptr<const StoredResponse> ResponseStore::get(std::string_view id) {
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(id);
  if (found == index_.end()) return nullptr;
  entries_.splice(entries_.end(), entries_, found->second);
  return found->second->response;
}

bool ResponseStore::erase(std::string_view id) {
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(id);
  if (found == index_.end()) return false;
  remove(found->second);
  return true;
}

size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

size_t ResponseStore::count() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace fathom
