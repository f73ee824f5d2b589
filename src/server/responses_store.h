// Responses that may be asked for again, or continued.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace fathom {

struct StoredResponse {
  std::string response;  // the response object, JSON
  std::string messages;  // the conversation with the answer, without instructions: a JSON array of chat messages
};

/// In memory only; when it is full the least recently used go first. Any thread.
class ResponseStore {
 public:
  explicit ResponseStore(size_t bytes_max = size_t{256} << 20, size_t count_max = 4096)
      : bytes_max_(bytes_max), count_max_(count_max) {}

  /// One that is larger than the whole store is not kept.
  void put(const std::string& id, StoredResponse response);
  /// Null if it is unknown, deleted or was pushed out.
  std::shared_ptr<const StoredResponse> get(std::string_view id);
  bool erase(std::string_view id);
  size_t bytes() const;
  size_t count() const;

 private:
  struct Entry {
    std::string id;
    std::shared_ptr<const StoredResponse> response;
    size_t bytes = 0;
  };
  void remove(std::list<Entry>::iterator entry);

  const size_t bytes_max_, count_max_;
  mutable std::mutex mutex_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;  // least recently used first
  std::map<std::string, std::list<Entry>::iterator, std::less<>> index_;
};

}  // namespace fathom
