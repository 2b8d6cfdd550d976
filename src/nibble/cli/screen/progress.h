#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "nibble/base/progress.h"
#include "nibble/cli/screen/session.h"

namespace nibble::cli {

// How far a long job is, on standard error: one line that renews itself on a
// terminal, a line every few seconds with --progress plain, else nothing.
class Progress final : public ProgressSink {
 public:
  // unit: what is counted: "B" prints sizes, else a word such as "windows".
  explicit Progress(const Session& session, std::string unit = "B");
  // Clears the line.
  ~Progress() override;

  void begin(std::string_view phase, std::uint64_t total) override;
  void advance(std::uint64_t count) override;
  void end() override;

 private:
  enum class Mode { kNone, kTerminal, kPlain };
  using Clock = std::chrono::steady_clock;

  void show(std::uint64_t done);
  void clear();

  Mode mode_ = Mode::kNone;
  std::string unit_;
  std::string phase_;
  std::uint64_t total_ = 0;
  Clock::time_point begin_;
  std::atomic<std::uint64_t> done_{0};
  std::mutex mutex_;  // guards what follows, and the terminal
  Clock::time_point next_;
  bool visible_ = false;
};

// "45 %  1.2 GiB of 2.7 GiB  850 MiB/s  2 s left"; unit as above. The rate and
// the time left come once seconds is enough to know them; a total of 0 is not
// known.
[[nodiscard]] std::string progress_text(std::uint64_t done,
                                        std::uint64_t total,
                                        double seconds,
                                        const std::string& unit);

}  // namespace nibble::cli
