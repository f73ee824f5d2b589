// A pool of threads that run one indexed loop at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/result.h"

namespace fathom {

/// A reference to a callable, for the length of one call. Copies nothing, allocates nothing.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
  FunctionRef(F&& callable)
      : object_(const_cast<void*>(static_cast<const void*>(&callable))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

/// run() is called by one thread at a time (the engine's); the caller works too. Tasks must not call
/// run() again. Which thread gets which task is not fixed, so a task's result must depend on its index
/// alone: that is what keeps results equal for every thread count.
class ThreadPool {
 public:
  /// `thread_count` >= 1 counts the calling thread; 0 means one for each core this process may use.
  explicit ThreadPool(int thread_count);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int thread_count() const;
  /// Binds every thread but the caller's to a core of its own, leaving the first core that this process may use
  /// for the caller. kInvalidArgument if there are more threads than cores.
  Result<void> pin();
  /// Calls task(index, thread) for every index in [0, task_count), thread in [0, thread_count()).
  void run(int64_t task_count, FunctionRef<void(int64_t index, int thread)> task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom
