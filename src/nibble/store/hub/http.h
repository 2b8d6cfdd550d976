#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace nibble::store::hub {

// Head of an answer, names of headers in lower case. After redirections it is
// the last one's, with what the first said of the file behind (X-Linked-Size,
// X-Linked-Etag, X-Repo-Commit).
struct Head {
  int status = 0;
  std::map<std::string, std::string> headers;

  // The header's value, or "".
  [[nodiscard]] std::string header(const std::string& name) const;
};

struct Request {
  std::string url;
  // Sent as "Authorization: Bearer" to the origin (scheme, host, port) of url
  // alone, never to where it redirects.
  std::string token = {};
  std::uint64_t from = 0;  // first byte wanted
  // Sees the head before the body's first byte; 2xx answers only.
  std::function<void(const Head&)> begin = {};
  // Takes a piece of the body of a 2xx answer.
  std::function<void(std::string_view)> data = {};
  // Whether to stop; asked often.
  std::function<bool()> stopped = {};
};

// How a request ended: with an answer of any status, or without one.
struct Outcome {
  Head head;
  // "", or why the connection failed or broke off: trying again may help.
  std::string broken;
};

// GET by HTTP or HTTPS; follows up to ten redirections, never from HTTPS to
// HTTP. Waits at most 30 s for a connection and 60 s for a byte. Errors that
// begin() and data() throw go on to the caller; kInterrupted when stopped,
// kInvalidArgument for a url that is none. Thread-safe.
[[nodiscard]] Outcome get(const Request& request);

// text with every byte but letters, digits, '-', '.', '_', '~' and those of
// kept as %XX.
[[nodiscard]] std::string url_encode(std::string_view text,
                                     std::string_view kept = "");

}  // namespace nibble::store::hub
