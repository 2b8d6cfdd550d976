#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "nibble/cli/session.h"

namespace nibble::cli {

// How far a long job is, on standard error: one line that renews itself on a
// terminal, a line every few seconds with --progress plain, else nothing.
// Thread-safe.
class Progress {
 public:
  // verb: "quantizing". unit: what is counted: "B" prints sizes, else a word
  // such as "tokens".
  Progress(const Session& session, std::string verb, std::string unit = "B");
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // Clears the line.
  ~Progress();

  void update(std::uint64_t done, std::uint64_t total);

 private:
  enum class Mode { kNone, kTerminal, kPlain };
  using Clock = std::chrono::steady_clock;

  Mode mode_ = Mode::kNone;
  std::string verb_;
  std::string unit_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_{};
  bool visible_ = false;
  std::mutex mutex_;
};

// "45 %  1.2 GiB of 2.7 GiB  850 MiB/s  2 s left"; unit as above. The rate and
// the time left come once seconds is enough to know them.
[[nodiscard]] std::string progress_text(std::uint64_t done,
                                        std::uint64_t total,
                                        double seconds,
                                        const std::string& unit);

}  // namespace nibble::cli
