#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nibble::text {

// Lets text through until the first stop string in it. A part that may be the
// beginning of a stop string is held back, so the stop string itself is never
// seen, wherever the portions are cut. The string that is complete first
// counts; of several complete at once, the longest.
class StopFilter {
 public:
  // kInvalidArgument when a stop string is empty.
  explicit StopFilter(std::vector<std::string> stops);

  // Text that is free to go after this portion; nothing once stopped.
  [[nodiscard]] std::string push(std::string_view portion);
  // The text still held, when no more will come.
  [[nodiscard]] std::string finish();

  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  [[nodiscard]] std::size_t held_bytes() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace nibble::text
