#include "engine/disk_loader.h"

#include "base/log.h"

namespace fathom {

DiskLoader::DiskLoader(DiskCache& disk, std::function<void()> wake)
    : disk_(disk), wake_(std::move(wake)), thread_([this] { run(); }) {}

DiskLoader::~DiskLoader() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void DiskLoader::start(GenerationId id, const DiskCacheMatch& match, std::vector<int32_t> prompt) {
  const std::lock_guard lock(mutex_);
  wanted_.push_back({.id = id, .match = match, .prompt = std::move(prompt)});
  changed_.notify_one();
}

std::optional<std::unique_ptr<DiskLoader::Loaded>> DiskLoader::take(GenerationId id) {
  const std::lock_guard lock(mutex_);
  const auto found = done_.find(id);
  if (found == done_.end()) return std::nullopt;
  std::unique_ptr<Loaded> loaded = std::move(found->second);
  done_.erase(found);
  return loaded;
}

void DiskLoader::forget(GenerationId id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(wanted_, [&](const Wanted& wanted) { return wanted.id == id; });
  done_.erase(id);
  if (loading_ == id) loading_ = 0;
}

void DiskLoader::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_closing_ || !wanted_.empty(); });
    if (is_closing_) return;
    const Wanted wanted = std::move(wanted_.front());
    wanted_.pop_front();
    loading_ = wanted.id;
    lock.unlock();
    Result<SavedState> saved = disk_.load(wanted.match, wanted.prompt);
    std::unique_ptr<Loaded> loaded;
    if (saved.ok()) {
      loaded = std::make_unique<Loaded>(Loaded{.match = wanted.match, .saved = std::move(saved).value()});
    } else {
      log_warning("request {}: a state on disk cannot be used: {}", wanted.id, saved.error().message);
    }
    lock.lock();
    if (loading_ == wanted.id) done_[wanted.id] = std::move(loaded);
    loading_ = 0;
    lock.unlock();
    wake_();
    lock.lock();
  }
}

}  // namespace fathom
