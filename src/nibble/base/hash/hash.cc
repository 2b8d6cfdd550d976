#include "nibble/base/hash/hash.h"

#include <fmt/core.h>
#include <xxhash.h>

#include "nibble/base/cpu.h"
#include "nibble/base/hash/hash_x86.h"

namespace nibble {
namespace {

using UpdateFn = void (*)(void* state, const void* data, std::size_t bytes);

UpdateFn update_function(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) {
    return update_hash_avx512;
  }
  if (isa == Isa::kAvx2) {
    return update_hash_avx2;
  }
#else
  static_cast<void>(isa);
#endif
  return [](void* state, const void* data, std::size_t bytes) {
    XXH3_128bits_update(static_cast<XXH3_state_t*>(state), data, bytes);
  };
}

}  // namespace

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
  static const UpdateFn function = update_function(best_isa());
  function(state_->xxh, bytes.data(), bytes.size());
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
