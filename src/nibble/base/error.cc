#include "nibble/base/error.h"

#include <cerrno>
#include <cstring>

namespace nibble {

void fail_errno(std::string_view what, std::string_view path) {
  const int saved = errno;
  fail(ErrorCode::kIo, "{}: {}: {}", what, path, std::strerror(saved));
}

std::string printable(std::string_view text) {
  constexpr std::size_t kLimit = 120;
  std::string out;
  for (const char c : text.substr(0, kLimit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (text.size() > kLimit) {
    out += "...";
  }
  return out;
}

}  // namespace nibble
