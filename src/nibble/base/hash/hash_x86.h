#pragma once

#include <cstddef>

// Only plain data: sources built for one instruction set include this header.
namespace nibble {

// XXH3_128bits_update with vectors of one set of instructions; state is a
// XXH3_state_t of the xxHash library. The package's own build uses SSE2.
void update_hash_avx2(void* state, const void* data, std::size_t bytes);
void update_hash_avx512(void* state, const void* data, std::size_t bytes);

}  // namespace nibble
