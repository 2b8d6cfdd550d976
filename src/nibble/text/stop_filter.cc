#include "nibble/text/stop_filter.h"

#include <algorithm>
#include <utility>

#include "nibble/base/error.h"

namespace nibble::text {

StopFilter::StopFilter(std::vector<std::string> stops)
    : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    NIBBLE_CHECK(
        !stop.empty(),
        kInvalidArgument,
        "stop: found an empty string, expected at least one character");
  }
}

std::string StopFilter::push(std::string_view portion) {
  if (stopped_) {
    return {};
  }
  held_ += portion;
  std::size_t first_end = std::string::npos;
  std::size_t begin = 0;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_.find(stop);
    if (at == std::string::npos) {
      continue;
    }
    const std::size_t end = at + stop.size();
    if (end < first_end || (end == first_end && at < begin)) {
      first_end = end;
      begin = at;
    }
  }
  if (first_end != std::string::npos) {
    stopped_ = true;
    held_.resize(begin);
    return std::exchange(held_, {});
  }
  const std::size_t ready = held_.size() - held_bytes();
  std::string out = held_.substr(0, ready);
  held_.erase(0, ready);
  return out;
}

// Bytes at the end of held_ that a stop string may start with.
std::size_t StopFilter::held_bytes() const {
  std::size_t most = 0;
  const std::string_view text = held_;
  for (const std::string& stop : stops_) {
    std::size_t length = std::min(stop.size() - 1, text.size());
    while (length > most &&
           !text.ends_with(std::string_view(stop).substr(0, length))) {
      --length;
    }
    most = std::max(most, length);
  }
  return most;
}

std::string StopFilter::finish() {
  return std::exchange(held_, {});
}

}  // namespace nibble::text
