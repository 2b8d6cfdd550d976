#pragma once

#include <string_view>

namespace nibble {

// Sets of instructions that kernels are written for, in rising order.
enum class Isa { kPortable, kAvx2, kAvx512 };

// kAvx2 needs AVX2, FMA and F16C; kAvx512 needs AVX-512 F, BW, DQ, VL and
// VNNI as well. "portable", "avx2", "avx512".
[[nodiscard]] std::string_view isa_name(Isa isa);

// The highest set that this processor has and NIBBLE_ISA allows (highest
// allowed; all when unset). Read once; throws kInvalidArgument for an unknown
// NIBBLE_ISA.
[[nodiscard]] Isa best_isa();

// Whether this processor has the set, whatever NIBBLE_ISA says.
[[nodiscard]] bool cpu_has(Isa isa);

// As cpu_has, for the AVX-512 BF16 dot products (needs kAvx512 as well).
[[nodiscard]] bool cpu_has_avx512_bf16();

}  // namespace nibble
