#pragma once

#include <filesystem>
#include <string>

namespace nibble::store::hub {

// What the hub tells of a file's content: SHA-256 for large ones (LFS), the
// object name of git for others. Hexadecimal, in lower case; at most one is
// set.
struct ContentDigest {
  std::string sha256 = {};
  std::string git_sha1 = {};  // SHA-1 of "blob SIZE\0" and the content

  [[nodiscard]] bool known() const {
    return !sha256.empty() || !git_sha1.empty();
  }

  // "sha256:..." or "git-sha1:...", or "".
  [[nodiscard]] std::string text() const;
};

// The digest that an ETag carries: 64 digits are SHA-256, 40 git's; anything
// else (a weak one, a content hash of another server) is none.
[[nodiscard]] ContentDigest digest_of_etag(const std::string& etag);

// Reads the file and gives its digest of the kind that expected has.
[[nodiscard]] ContentDigest digest_like(const ContentDigest& expected,
                                        const std::filesystem::path& file);

}  // namespace nibble::store::hub
