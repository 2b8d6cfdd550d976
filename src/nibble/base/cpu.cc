#include "nibble/base/cpu.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "nibble/base/error.h"

namespace nibble {
namespace {

Isa allowed_isa() {
  const char* text = std::getenv("NIBBLE_ISA");
  if (text == nullptr || *text == '\0') {
    return Isa::kAvx512;
  }
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (isa_name(isa) == text) {
      return isa;
    }
  }
  fail(ErrorCode::kInvalidArgument,
       "NIBBLE_ISA: found '{}', expected avx512, avx2 or portable",
       printable(text));
}

#if defined(__x86_64__)
// Clang 14 does not know the name "f16c" that GCC's builtin takes.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kPortable:
      break;
  }
  return "portable";
}

bool cpu_has(Isa isa) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 &&
                    __builtin_cpu_supports("fma") != 0 && has_f16c();
  if (isa == Isa::kAvx2) {
    return avx2;
  }
  if (isa == Isa::kAvx512) {
    return avx2 && __builtin_cpu_supports("avx512f") != 0 &&
           __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512dq") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0 &&
           __builtin_cpu_supports("avx512vnni") != 0;
  }
#endif
  return isa == Isa::kPortable;
}

bool cpu_has_avx512_bf16() {
#if defined(__x86_64__)
  return cpu_has(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

Isa best_isa() {
  static const Isa best = [] {
    Isa isa = allowed_isa();
    while (!cpu_has(isa)) {
      isa = static_cast<Isa>(static_cast<int>(isa) - 1);
    }
    return isa;
  }();
  return best;
}

}  // namespace nibble
