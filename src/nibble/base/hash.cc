#include "nibble/base/hash.h"

#include <fmt/core.h>
#include <xxhash.h>

namespace nibble {

struct Hasher::State {
  State() : xxh(XXH3_createState()) { XXH3_128bits_reset(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { XXH3_freeState(xxh); }

  XXH3_state_t* xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

void Hasher::update(std::string_view text) {
  update(std::as_bytes(std::span(text)));
}

std::string Hasher::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return fmt::format("xxh3:{:016x}{:016x}", hash.high64, hash.low64);
}

std::string hash_bytes(std::span<const std::byte> bytes) {
  Hasher hasher;
  hasher.update(bytes);
  return hasher.digest();
}

}  // namespace nibble
