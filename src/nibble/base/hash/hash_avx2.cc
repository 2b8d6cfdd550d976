// Everything of the library static and built for this file's instructions.
#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_AVX2
#include <xxhash.h>

#include "nibble/base/hash/hash_x86.h"

namespace nibble {

void update_hash_avx2(void* state, const void* data, std::size_t bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state), data, bytes);
}

}  // namespace nibble
