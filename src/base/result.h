// Result<T>: a value, or an Error saying what, where, expected and found.
// No exception crosses a room; functions that can fail because of the world return Result.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace fathom {

enum class ErrorCode : int {
  kInvalidArgument = 1,  // the caller asked for something meaningless
  kNotFound = 2,         // a file, tensor or entry that was named does not exist
  kIo = 3,               // the operating system refused to read or write
  kBadPack = 4,          // a file contradicts its format, its config or itself
  kUnsupported = 5,      // well-formed, but not something this build can run
  kNoMemory = 6,         // the plan does not fit the budget
  kState = 7,            // the object is not in a state that allows the call
  kContextFull = 8,      // the tokens do not fit the context
  kCancelled = 9,        // a cancel callback said stop
  kInternal = 10,        // a bug that could be reported instead of aborting
  kBusy = 11,            // too much waits already; the same may work later
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  template <class... Args>
  static Error make(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
    return {code, fmt::format(text, std::forward<Args>(args)...)};
  }
#define FATHOM_ERROR_FACTORY(name, value)                                        \
  template <class... Args>                                                       \
  static Error name(fmt::format_string<Args...> text, Args&&... args) {          \
    return make(ErrorCode::value, text, std::forward<Args>(args)...);            \
  }
  FATHOM_ERROR_FACTORY(invalid, kInvalidArgument)
  FATHOM_ERROR_FACTORY(not_found, kNotFound)
  FATHOM_ERROR_FACTORY(io, kIo)
  FATHOM_ERROR_FACTORY(bad_pack, kBadPack)
  FATHOM_ERROR_FACTORY(unsupported, kUnsupported)
  FATHOM_ERROR_FACTORY(no_memory, kNoMemory)
  FATHOM_ERROR_FACTORY(state, kState)
  FATHOM_ERROR_FACTORY(context_full, kContextFull)
  FATHOM_ERROR_FACTORY(cancelled, kCancelled)
  FATHOM_ERROR_FACTORY(internal, kInternal)
  FATHOM_ERROR_FACTORY(busy, kBusy)
#undef FATHOM_ERROR_FACTORY
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    FATHOM_CHECK(ok(), "value() of a failed result: {}", error().message);
    return std::get<0>(state_);
  }
  const T& value() const& {
    FATHOM_CHECK(ok(), "value() of a failed result: {}", error().message);
    return std::get<0>(state_);
  }
  T&& value() && { return std::move(value()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace fathom

#define FATHOM_CONCAT_INNER(a, b) a##b
#define FATHOM_CONCAT(a, b) FATHOM_CONCAT_INNER(a, b)

// FATHOM_TRY(expression): return the error of a failed Result, otherwise go on.
#define FATHOM_TRY(...)                                                          \
  do {                                                                           \
    if (auto fathom_result = (__VA_ARGS__); !fathom_result.ok())                 \
      return std::move(fathom_result).error();                                   \
  } while (false)

// FATHOM_ASSIGN(auto x, expression): return the error, or bind the value.
#define FATHOM_ASSIGN(declaration, ...)                                          \
  FATHOM_ASSIGN_INNER(FATHOM_CONCAT(fathom_result_, __LINE__), declaration, __VA_ARGS__)
#define FATHOM_ASSIGN_INNER(temporary, declaration, ...)                         \
  auto temporary = (__VA_ARGS__);                                                \
  if (!temporary.ok()) return std::move(temporary).error();                      \
  declaration = std::move(temporary).value()
