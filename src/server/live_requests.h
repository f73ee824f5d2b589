// Requests that are being answered, by the name clients know them under.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generator.h"

namespace fathom {

class LiveRequests;

/// One request and the answers it asked the generator for. Lives as long as somebody works for it. Any thread.
class LiveRequest {
 public:
  LiveRequest(LiveRequests& registry, Generator& generator, std::string name);
  ~LiveRequest();
  LiveRequest(const LiveRequest&) = delete;
  LiveRequest& operator=(const LiveRequest&) = delete;

  const std::string& name() const { return name_; }
  void add(GenerationId id);
  /// Ends all answers, also those that are added later.
  void cancel();

 private:
  LiveRequests& registry_;
  Generator& generator_;
  const std::string name_;
  std::mutex mutex_;
  bool cancelled_ = false;
  std::vector<GenerationId> ids_;
};

class LiveRequests {
 public:
  std::shared_ptr<LiveRequest> start(Generator& generator, std::string name);
  /// False if no such request is being answered.
  bool cancel(std::string_view name);

 private:
  friend class LiveRequest;
  void remove(const std::string& name);
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<LiveRequest>, std::less<>> requests_;
};

/// `prefix` and 24 random hexadecimal digits.
std::string random_name(std::string_view prefix);

}  // namespace fathom
