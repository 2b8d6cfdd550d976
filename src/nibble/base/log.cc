#include "nibble/base/log.h"

#include <mutex>
#include <utility>

namespace nibble {
namespace {

struct Sink {
  std::mutex mutex;
  std::function<void(LogLevel, std::string_view)> call;
};

Sink& sink() {
  static Sink instance;
  return instance;
}

}  // namespace

void set_log_sink(std::function<void(LogLevel, std::string_view)> call) {
  const std::scoped_lock lock(sink().mutex);
  sink().call = std::move(call);
}

void log_line(LogLevel level, std::string_view text) {
  const std::scoped_lock lock(sink().mutex);
  if (sink().call) {
    sink().call(level, text);
  }
}

}  // namespace nibble
