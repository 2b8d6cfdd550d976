#include "nibble/store/hub/digest.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <openssl/evp.h>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"

namespace nibble::store::hub {
namespace {

constexpr std::uint64_t kChunkBytes = 1 << 20;

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

bool is_hexadecimal(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

// Digest of prefix and the file's content.
std::string digest_of(const EVP_MD* kind,
                      std::string_view prefix,
                      const File& file) {
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
  const auto check = [](int result) {
    NIBBLE_CHECK(result == 1, kInternal, "libcrypto: found no such digest");
  };
  check(EVP_DigestInit_ex(context.get(), kind, nullptr));
  check(EVP_DigestUpdate(context.get(), prefix.data(), prefix.size()));
  const std::uint64_t size = file.size_bytes();
  std::vector<std::byte> chunk(
      static_cast<std::size_t>(std::min(size, kChunkBytes)));
  for (std::uint64_t at = 0; at < size; at += chunk.size()) {
    const auto bytes = std::span(chunk).first(static_cast<std::size_t>(
        std::min<std::uint64_t>(chunk.size(), size - at)));
    file.read(at, bytes);
    check(EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()));
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  check(EVP_DigestFinal_ex(context.get(), digest, &length));
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += fmt::format("{:02x}", digest[i]);
  }
  return text;
}

}  // namespace

std::string ContentDigest::text() const {
  return !sha256.empty()     ? "sha256:" + sha256
         : !git_sha1.empty() ? "git-sha1:" + git_sha1
                             : "";
}

ContentDigest digest_of_etag(const std::string& etag) {
  std::string text = etag;
  text.erase(std::remove(text.begin(), text.end(), '"'), text.end());
  if (!is_hexadecimal(text)) {
    return {};
  }
  return text.size() == 64   ? ContentDigest{.sha256 = text}
         : text.size() == 40 ? ContentDigest{.git_sha1 = text}
                             : ContentDigest{};
}

ContentDigest digest_like(const ContentDigest& expected,
                          const std::filesystem::path& path) {
  const File file = File::open_read(path);
  if (!expected.sha256.empty()) {
    return {.sha256 = digest_of(EVP_sha256(), "", file)};
  }
  if (expected.git_sha1.empty()) {
    return {};
  }
  // The prefix ends with a NUL byte.
  const std::string prefix =
      "blob " + std::to_string(file.size_bytes()) + std::string(1, '\0');
  return {.git_sha1 = digest_of(EVP_sha1(), prefix, file)};
}

}  // namespace nibble::store::hub
