#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nibble::text {

// A token that is found in the text itself, before anything cuts it.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // not where a word character touches it
  bool lstrip = false;       // takes white space in front of it along
  bool rstrip = false;       // and behind it
  bool normalized = false;   // looked for in normalized text
  bool special = false;      // left out when decoding without specials
};

// A stretch of text that is either one added token or text to encode.
struct Section {
  std::optional<std::int32_t> token;
  std::string_view text;
};

// Finds added tokens, leftmost-longest. Immutable; views the text it cuts.
class AddedTokenFinder {
 public:
  // Looks for the given spellings; the first of equal ones counts, empty ones
  // are never found.
  struct Entry {
    std::string spelling;  // content, normalized where the token asks for it
    AddedToken token;
  };

  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<Entry> entries);

  // All of text, cut. text must be valid UTF-8.
  [[nodiscard]] std::vector<Section> cut(std::string_view text) const;

 private:
  struct Node {
    std::vector<std::pair<char, std::uint32_t>> next;
    std::int32_t entry = -1;  // the spelling that ends here
  };

  struct Match {
    std::size_t begin;
    std::size_t end;
    std::size_t entry;
  };

  [[nodiscard]] std::optional<Match> longest_at(std::string_view text,
                                                std::size_t begin) const;

  std::vector<Entry> entries_;
  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};  // first bytes of all spellings
};

}  // namespace nibble::text
