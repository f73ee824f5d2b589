#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "interrupt.h"
#include "sizes.h"

namespace fathom::cli {
namespace {

using std::chrono::milliseconds;

// Long enough that rates do not jump from step to step, short enough to follow a disk that gets slower.
constexpr std::chrono::seconds kWindow{20};
constexpr milliseconds kTerminalDelay{400}, kTerminalInterval{200};
constexpr milliseconds kLogDelay{1000}, kLogInterval{3000};

std::string amount(double number, const std::string& unit) {
  return unit == "bytes" ? format_bytes(number) : fmt::format("{:.0f} {}", number, unit);
}

std::string speed(double rate, const std::string& unit) {
  if (unit == "bytes") return format_bytes(rate) + "/s";
  return fmt::format("{:.{}f} {}/s", rate, rate < 10 ? 1 : 0, unit);
}

void write_line(const std::string& text) {
  // Progress is a courtesy: whether it can be written must not decide whether the work is done.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0) {}

bool Progress::report(void* user, const fathom_progress* progress) {
  static_cast<Progress*>(user)->update(*progress);
  return !interrupted();
}

void Progress::update(const fathom_progress& progress) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (stage_ != progress.stage || unit_ != progress.unit) {
    samples_.clear();
    stage_ = progress.stage;
    unit_ = progress.unit;
  }
  total_ = progress.total;
  if (samples_.empty() || samples_.back().done != progress.done) samples_.push_back({now, progress.done});
  while (samples_.size() > 2 && now - samples_.front().time > kWindow) samples_.pop_front();
  if (thread_.joinable()) return;
  start_ = now;
  stop_ = false;
  thread_ = std::thread([this] { draw_until_stopped(); });
}

void Progress::finish() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (drawn_ && terminal_) write_line("\r\033[K");
  drawn_ = false;
  samples_.clear();
}

void Progress::draw_until_stopped() {
  std::unique_lock lock(mutex_);
  auto next = start_ + (terminal_ ? kTerminalDelay : kLogDelay);
  while (!wake_.wait_until(lock, next, [this] { return stop_; })) {
    const std::string text = line(Clock::now());
    write_line(terminal_ ? "\r" + text + "\033[K" : text + "\n");
    drawn_ = true;
    next += terminal_ ? kTerminalInterval : kLogInterval;
  }
}

std::string Progress::line(Clock::time_point now) const {
  if (samples_.empty()) return stage_;
  const int64_t done = samples_.back().done;
  std::string text = stage_ + "  ";
  if (total_ > 0) {
    const double percent = 100.0 * static_cast<double>(done) / static_cast<double>(total_);
    text += fmt::format("{:3.0f} %  {} of {}", percent, amount(static_cast<double>(done), unit_),
                        amount(static_cast<double>(total_), unit_));
  } else {
    text += amount(static_cast<double>(done), unit_);
  }
  // To the last report while reports are frequent; to now when the current step outlasts those before it.
  const double moved = static_cast<double>(done - samples_.front().done);
  const std::chrono::duration<double> between = samples_.back().time - samples_.front().time;
  const std::chrono::duration<double> since = now - samples_.back().time;
  const double steps = static_cast<double>(samples_.size() - 1);
  const bool is_late = steps > 0 && since > 2 * between / steps;
  const double seconds = between.count() + (is_late ? since.count() : 0);
  if (moved > 0 && seconds > 0) {
    const double rate = moved / seconds;
    text += "  " + speed(rate, unit_);
    if (total_ > done)
      text += fmt::format("  {} left", format_seconds(static_cast<double>(total_ - done) / rate));
  } else {
    text += fmt::format("  since {}", format_seconds(std::chrono::duration<double>(now - start_).count()));
  }
  return text;
}

}  // namespace fathom::cli
