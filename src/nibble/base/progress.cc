#include "nibble/base/progress.h"

namespace nibble {

void ProgressSink::begin(std::string_view /*phase*/,
                         std::uint64_t /*total_bytes*/) {}

void ProgressSink::advance(std::uint64_t /*bytes*/) {}

void ProgressSink::end() {}

ProgressSink& null_progress() {
  static ProgressSink sink;
  return sink;
}

}  // namespace nibble
