#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nibble {

// Bytes named by text such as "512MiB", "4GB", "1.5 GiB" or "4096". KB, MB, GB
// and TB are powers of 1000; KiB, MiB, GiB and TiB powers of 1024; a trailing
// B may be left out (K = KB). Throws kInvalidArgument otherwise.
[[nodiscard]] std::uint64_t parse_size(std::string_view text);

// "712 B", "3.4 MiB", "1.21 GiB": three significant digits.
[[nodiscard]] std::string format_size(std::uint64_t bytes);

// "0.4 s", "12 s", "3 min 20 s", "2 h 05 min".
[[nodiscard]] std::string format_seconds(double seconds);

// Of candidates the one nearest to word by edit distance, or "" when none is
// near enough to be a likely misspelling (distance above a third of its size).
template <typename Range>
[[nodiscard]] std::string nearest_word(std::string_view word,
                                       const Range& candidates);

// Levenshtein distance of two short texts.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

template <typename Range>
std::string nearest_word(std::string_view word, const Range& candidates) {
  std::string best;
  std::size_t best_distance = std::string::npos;
  for (const auto& candidate : candidates) {
    const std::string_view text(candidate);
    const std::size_t distance = edit_distance(word, text);
    if (distance < best_distance && distance * 3 <= text.size() + 2) {
      best = std::string(text);
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace nibble
