#include "nibble/cli/screen/progress.h"

#include <cstdio>
#include <utility>

#include <fmt/core.h>

#include "nibble/base/units.h"
#include "nibble/cli/screen/output.h"

namespace nibble::cli {

std::string progress_text(std::uint64_t done,
                          std::uint64_t total,
                          double seconds,
                          const std::string& unit) {
  const auto amount = [&unit](std::uint64_t count) {
    return unit == "B" ? format_size(count) : fmt::format("{} {}", count, unit);
  };
  std::string text = total == 0 ? amount(done)
                                : fmt::format("{:3.0f} %  {} of {}",
                                              100 * static_cast<double>(done) /
                                                  static_cast<double>(total),
                                              amount(done),
                                              amount(total));
  // A rate from less time than this would only confuse.
  constexpr double kLeastSeconds = 0.5;
  if (seconds >= kLeastSeconds && done > 0) {
    const double rate = static_cast<double>(done) / seconds;
    text += fmt::format("  {}/s", amount(static_cast<std::uint64_t>(rate)));
    if (total >= done) {
      text +=
          fmt::format("  {} left",
                      format_seconds(static_cast<double>(total - done) / rate));
    }
  }
  return text;
}

Progress::Progress(const Session& session, std::string unit)
    : unit_(std::move(unit)) {
  if (session.quiet || session.progress == "none") {
    return;
  }
  if (session.progress == "plain") {
    mode_ = Mode::kPlain;
  } else if (error_is_terminal()) {
    mode_ = Mode::kTerminal;
  }
}

Progress::~Progress() {
  clear();
}

void Progress::begin(std::string_view phase, std::uint64_t total) {
  phase_ = phase;
  total_ = total;
  begin_ = Clock::now();
  next_ = begin_;
  done_ = 0;
  show(0);
}

void Progress::advance(std::uint64_t count) {
  show(done_.fetch_add(count) + count);
}

void Progress::end() {
  clear();
}

void Progress::show(std::uint64_t done) {
  if (mode_ == Mode::kNone) {
    return;
  }
  using namespace std::chrono_literals;
  const std::scoped_lock lock(mutex_);
  const auto now = Clock::now();
  if (now < next_) {
    return;
  }
  next_ = now + (mode_ == Mode::kTerminal ? 100ms : 3000ms);
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const std::string text =
      phase_ + " " + progress_text(done, total_, seconds, unit_);
  if (mode_ == Mode::kPlain) {
    print_error(text);
  } else {
    // Back to the first column, the new text, the rest of the line cleared.
    std::fputs(("\r" + text + "\033[K").c_str(), stderr);
    std::fflush(stderr);
    visible_ = true;
  }
}

void Progress::clear() {
  if (visible_) {
    std::fputs("\r\033[K", stderr);
    visible_ = false;
  }
}

}  // namespace nibble::cli
