// Reads states from the disk cache while the engine's thread runs steps.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "engine/disk_cache.h"
#include "engine/generator.h"

namespace fathom {

/// start(), take() and forget() are for the engine's thread; loads happen one after the other on one of its own.
class DiskLoader {
 public:
  struct Loaded {
    DiskCacheMatch match;
    SavedState saved;
  };

  /// `wake` is called from the loader's thread whenever a load has ended.
  DiskLoader(DiskCache& disk, std::function<void()> wake);
  /// Waits for the load at hand.
  ~DiskLoader();

  void start(GenerationId id, const DiskCacheMatch& match, std::vector<int32_t> prompt);
  /// Nothing while the load of `id` goes on; null if it failed, which the log says.
  std::optional<std::unique_ptr<Loaded>> take(GenerationId id);
  /// Nobody will take it.
  void forget(GenerationId id);

 private:
  struct Wanted {
    GenerationId id = 0;
    DiskCacheMatch match;
    std::vector<int32_t> prompt;
  };
  void run();

  DiskCache& disk_;
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Wanted> wanted_;
  GenerationId loading_ = 0;     // at hand; 0: none, or forgotten
  std::unordered_map<GenerationId, std::unique_ptr<Loaded>> done_;
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace fathom
