#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nibble::text {

// Byte pair encoding: a vocabulary and the ranked pairs that merge. Immutable
// and safe to use from several threads.
class BpeModel {
 public:
  struct Options {
    // A character outside the vocabulary is written with the tokens <0x00> to
    // <0xFF> of its bytes, when the vocabulary has them all;
    bool byte_fallback = false;
    // else with this token; else it is dropped.
    std::optional<std::string> unknown_token;
    // Adjacent unknown characters give one unknown token.
    bool fuse_unknown = false;
    // A word that is a token is that token, whatever the merges say.
    bool ignore_merges = false;
  };

  // Ids may have gaps but not duplicates, and are below kIdLimit. merges: the
  // pair with the lower index merges first. kCorruptData, with the place,
  // when a token of a merge, or what it makes, is not in the vocabulary.
  BpeModel(std::vector<std::pair<std::string, std::int32_t>> vocabulary,
           const std::vector<std::pair<std::string, std::string>>& merges,
           Options options);
  // Not copied: the index refers to the tokens.
  BpeModel(const BpeModel&) = delete;
  BpeModel& operator=(const BpeModel&) = delete;
  BpeModel(BpeModel&&) = default;
  BpeModel& operator=(BpeModel&&) = default;
  ~BpeModel() = default;

  // Largest id of any file plus one: more than ten times the largest
  // vocabulary published, small enough to allocate.
  static constexpr std::int32_t kIdLimit = 1 << 22;

  // Appends the ids of one word (valid UTF-8). O(n log n) in its characters.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;

  [[nodiscard]] std::optional<std::int32_t> token_to_id(
      std::string_view token) const;
  [[nodiscard]] std::optional<std::string_view> id_to_token(
      std::int32_t id) const;

  // One more than the highest id.
  [[nodiscard]] std::int32_t id_end() const {
    return static_cast<std::int32_t>(tokens_.size());
  }

 private:
  struct Merge {
    std::int32_t rank;
    std::int32_t id;  // of the joined token
  };

  void add_merge(std::size_t rank,
                 const std::pair<std::string, std::string>& pair);
  [[nodiscard]] std::vector<std::int32_t> characters(
      std::string_view word) const;
  [[nodiscard]] const Merge* find_merge(std::int32_t left,
                                        std::int32_t right) const;

  std::vector<std::optional<std::string>> tokens_;  // by id
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::unordered_map<std::uint64_t, Merge> merges_;  // by (left, right)
  std::optional<std::array<std::int32_t, 256>> byte_ids_;
  std::optional<std::int32_t> unknown_id_;
  Options options_;
};

}  // namespace nibble::text
