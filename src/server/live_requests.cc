#include "server/live_requests.h"

#include <random>

namespace fathom {

LiveRequest::LiveRequest(LiveRequests& registry, Generator& generator, std::string name)
    : registry_(registry), generator_(generator), name_(std::move(name)) {}

LiveRequest::~LiveRequest() { registry_.remove(name_); }

void LiveRequest::add(GenerationId id) {
  {
    const std::lock_guard lock(mutex_);
    ids_.push_back(id);
    if (!cancelled_) return;
  }
  generator_.cancel(id);
}

void LiveRequest::cancel() {
  std::vector<GenerationId> ids;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    ids = ids_;
  }
  for (const GenerationId id : ids) generator_.cancel(id);
}

std::shared_ptr<LiveRequest> LiveRequests::start(Generator& generator, std::string name) {
  auto request = std::make_shared<LiveRequest>(*this, generator, std::move(name));
  const std::lock_guard lock(mutex_);
  requests_[request->name()] = request;
  return request;
}

bool LiveRequests::cancel(std::string_view name) {
  std::shared_ptr<LiveRequest> request;
  {
    const std::lock_guard lock(mutex_);
    const auto found = requests_.find(name);
    if (found != requests_.end()) request = found->second.lock();
  }
  // Outside of the lock: the last reference may be ours, and its end takes the lock.
  if (request == nullptr) return false;
  request->cancel();
  return true;
}

void LiveRequests::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  requests_.erase(name);
}

std::string random_name(std::string_view prefix) {
  static thread_local std::random_device device;
  std::string name(prefix);
  for (int part = 0; part < 3; ++part) name += fmt::format("{:08x}", device());
  return name;
}

}  // namespace fathom
