#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace nibble {

// XXH3 with 128 bits over bytes fed in order (not cryptographic: it finds
// accidents, not attackers). Not thread-safe; one object a stream.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  ~Hasher();

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  // "xxh3:" and 32 hexadecimal digits, high half first.
  [[nodiscard]] std::string digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Digest of one run of bytes.
[[nodiscard]] std::string hash_bytes(std::span<const std::byte> bytes);

}  // namespace nibble
