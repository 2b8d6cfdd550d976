#pragma once

#include <concepts>
#include <optional>

namespace nibble {

// a * b, or nothing when the product does not fit.
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_multiply(T a, T b) {
  T result{};
  if (__builtin_mul_overflow(a, b, &result)) {
    return std::nullopt;
  }
  return result;
}

// a + b, or nothing when the sum does not fit.
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) {
  T result{};
  if (__builtin_add_overflow(a, b, &result)) {
    return std::nullopt;
  }
  return result;
}

// Quotient rounded up; b > 0, a >= 0.
template <std::integral T>
[[nodiscard]] constexpr T divide_up(T a, T b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// a rounded up to a multiple of b.
template <std::integral T>
[[nodiscard]] constexpr T round_up(T a, T b) {
  return divide_up(a, b) * b;
}

}  // namespace nibble
