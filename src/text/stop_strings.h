// Stop strings in a stream of text that arrives in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fathom {

/// Passes text on as long as no stop string can be in it. What may be the beginning of one is held back; the
/// text before a found one has been passed on, the stop string itself and what follows never are. Which one
/// is found does not depend on how the stream was cut: the one that ends first, and of those the one that
/// begins first.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings);
  std::string take(std::string_view text);
  /// The end of the stream: what was held back.
  std::string finish();
  bool found() const { return found_; }
  /// The stop string that was found; empty before.
  const std::string& matched() const { return matched_; }
  size_t held_bytes() const { return held_.size(); }

 private:
  size_t unsafe_tail(std::string_view text) const;

  std::vector<std::string> strings_;  // none is empty
  std::string held_;
  std::string matched_;
  bool found_ = false;
};

}  // namespace fathom
