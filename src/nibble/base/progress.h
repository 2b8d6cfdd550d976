#pragma once

#include <cstdint>
#include <string_view>

namespace nibble {

// Where long work reports how far it is. One phase runs at a time; advance()
// comes from many threads at once, the other two from one thread. The base
// class ignores everything.
class ProgressSink {
 public:
  ProgressSink() = default;
  ProgressSink(const ProgressSink&) = delete;
  ProgressSink& operator=(const ProgressSink&) = delete;
  virtual ~ProgressSink() = default;

  // A phase ("quantizing") of total_bytes of work starts; 0 = not known.
  virtual void begin(std::string_view phase, std::uint64_t total_bytes);
  // bytes more are done.
  virtual void advance(std::uint64_t bytes);
  virtual void end();
};

// A sink that ignores everything.
[[nodiscard]] ProgressSink& null_progress();

}  // namespace nibble
