#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "nibble/base/progress.h"
#include "nibble/store/hub/api.h"

namespace nibble::store::hub {

// Which hub, as whom, and how to wait for it.
struct HubOptions {
  std::string endpoint = "https://huggingface.co";
  std::string token = {};
  // Called between attempts (absent: sleeps, but not once stopped).
  std::function<void(std::chrono::seconds)> sleep = {};
  std::function<bool()> stopped = {};
};

// Talks to one hub. Connections that break, overload (429) and errors of the
// server (5xx) are tried again up to five times in a row without a byte of
// progress, after what Retry-After asks for (at most five minutes) or else 1,
// 2, 4, 8 seconds. Thread-safe.
class Client {
 public:
  explicit Client(HubOptions options);

  // The files of a revision (branch, tag or commit). kNotFound for a model or
  // revision that is not there or not for this token, with a hint; kIo when the
  // hub cannot be reached.
  [[nodiscard]] RemoteModel model(const std::string& id,
                                  const std::string& revision) const;

  // Downloads a file of a commit to part, going on behind the bytes that are
  // there, and checks length and digest of the whole. kCorruptData, and no
  // part any more, when they are not what the hub said. Gives the digest that
  // was compared (none when the hub tells none). advance: of bytes, beginning
  // with those found.
  ContentDigest download(
      const std::string& id,
      const std::string& commit,
      const RemoteFile& file,
      const std::filesystem::path& part,
      const std::function<void(std::uint64_t)>& advance) const;

 private:
  HubOptions options_;
};

}  // namespace nibble::store::hub
