#include "nibble/cli/progress.h"

#include <cstdio>
#include <utility>

#include <fmt/core.h>

#include "nibble/base/units.h"
#include "nibble/cli/output.h"

namespace nibble::cli {

std::string progress_text(std::uint64_t done,
                          std::uint64_t total,
                          double seconds,
                          const std::string& unit) {
  const auto amount = [&unit](std::uint64_t count) {
    return unit == "B" ? format_size(count) : fmt::format("{} {}", count, unit);
  };
  const double share =
      total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  std::string text = fmt::format(
      "{:3.0f} %  {} of {}", 100 * share, amount(done), amount(total));
  // A rate from less time than this would only confuse.
  constexpr double kLeastSeconds = 0.5;
  if (seconds >= kLeastSeconds && done > 0) {
    const double rate = static_cast<double>(done) / seconds;
    const double left = static_cast<double>(total - done) / rate;
    text += fmt::format("  {}/s  {} left",
                        amount(static_cast<std::uint64_t>(rate)),
                        format_seconds(left));
  }
  return text;
}

Progress::Progress(const Session& session, std::string verb, std::string unit)
    : verb_(std::move(verb)), unit_(std::move(unit)) {
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
  if (visible_) {
    std::fputs("\r\033[K", stderr);
  }
}

void Progress::update(std::uint64_t done, std::uint64_t total) {
  if (mode_ == Mode::kNone) {
    return;
  }
  using namespace std::chrono_literals;
  const std::scoped_lock lock(mutex_);
  const auto now = Clock::now();
  const auto pause = mode_ == Mode::kTerminal ? 100ms : 3000ms;
  if (now - shown_ < pause && done < total) {
    return;
  }
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const std::string text =
      verb_ + " " + progress_text(done, total, seconds, unit_);
  if (mode_ == Mode::kPlain) {
    print_error(text);
  } else {
    // Back to the first column, the new text, the rest of the line cleared.
    std::fputs(("\r" + text + "\033[K").c_str(), stderr);
    std::fflush(stderr);
    visible_ = true;
  }
}

}  // namespace nibble::cli
