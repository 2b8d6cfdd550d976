#include "nibble/text/tokenizer/bpe.h"

#include <limits>
#include <queue>

#include <fmt/format.h>

#include "nibble/base/error.h"
#include "nibble/text/unicode/utf8.h"

namespace nibble::text {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
         static_cast<std::uint32_t>(right);
}

// One token of a word that is being merged; a doubly linked list in a vector.
struct Symbol {
  std::int32_t id;  // kGone once merged into its left neighbour
  std::int32_t previous;
  std::int32_t next;
};

constexpr std::int32_t kGone = -1;
constexpr std::int32_t kNone = -1;

struct Candidate {
  std::int32_t rank;
  std::int32_t at;  // index of the left symbol
  std::int32_t id;

  // The lowest rank first, the leftmost first among equals.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  }
};

}  // namespace

BpeModel::BpeModel(
    std::vector<std::pair<std::string, std::int32_t>> vocabulary,
    const std::vector<std::pair<std::string, std::string>>& merges,
    Options options)
    : options_(std::move(options)) {
  NIBBLE_CHECK(!vocabulary.empty(),
               kCorruptData,
               "vocab: found no token, expected at least one");
  std::int32_t highest = 0;
  for (const auto& [token, id] : vocabulary) {
    NIBBLE_CHECK(id >= 0 && id < kIdLimit,
                 kCorruptData,
                 "vocab['{}']: found id {}, expected 0 to {}",
                 printable(token),
                 id,
                 kIdLimit - 1);
    highest = std::max(highest, id);
  }
  tokens_.resize(static_cast<std::size_t>(highest) + 1);
  ids_.reserve(vocabulary.size());
  for (auto& [token, id] : vocabulary) {
    std::optional<std::string>& place = tokens_[static_cast<std::size_t>(id)];
    NIBBLE_CHECK(!place.has_value(),
                 kCorruptData,
                 "vocab['{}']: found id {}, which '{}' has too",
                 printable(token),
                 id,
                 printable(*place));
    place = std::move(token);
    ids_.emplace(*place, id);
  }

  merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    add_merge(rank, merges[rank]);
  }
  if (options_.unknown_token) {
    unknown_id_ = token_to_id(*options_.unknown_token);
    NIBBLE_CHECK(unknown_id_.has_value(),
                 kCorruptData,
                 "unk_token: found '{}', expected a token of vocab",
                 printable(*options_.unknown_token));
  }
  if (options_.byte_fallback) {
    byte_ids_.emplace();
    for (unsigned byte = 0; byte < 256; ++byte) {
      (*byte_ids_)[byte] =
          token_to_id(fmt::format("<0x{:02X}>", byte)).value_or(kNone);
    }
  }
}

void BpeModel::add_merge(std::size_t rank,
                         const std::pair<std::string, std::string>& pair) {
  const auto id_of = [&](const std::string& token) {
    const std::optional<std::int32_t> id = token_to_id(token);
    NIBBLE_CHECK(id.has_value(),
                 kCorruptData,
                 "merges[{}]: found '{}', expected a token of vocab",
                 rank,
                 printable(token));
    return *id;
  };
  const std::int32_t left = id_of(pair.first);
  const std::int32_t right = id_of(pair.second);
  // A pair that is listed twice counts where it stands last.
  merges_.insert_or_assign(
      pair_key(left, right),
      Merge{static_cast<std::int32_t>(rank), id_of(pair.first + pair.second)});
}

std::optional<std::int32_t> BpeModel::token_to_id(
    std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string_view> BpeModel::id_to_token(std::int32_t id) const {
  if (id < 0 || id >= id_end() || !tokens_[static_cast<std::size_t>(id)]) {
    return std::nullopt;
  }
  return *tokens_[static_cast<std::size_t>(id)];
}

const BpeModel::Merge* BpeModel::find_merge(std::int32_t left,
                                            std::int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<std::int32_t> BpeModel::characters(std::string_view word) const {
  std::vector<std::int32_t> ids;
  ids.reserve(word.size());
  bool unknown_pending = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::string_view character = word.substr(at, utf8_length(word[at]));
    at += character.size();
    if (const auto id = token_to_id(character)) {
      if (unknown_pending) {
        ids.push_back(*unknown_id_);
        unknown_pending = false;
      }
      ids.push_back(*id);
      continue;
    }
    if (byte_ids_) {
      const std::size_t before = ids.size();
      bool complete = true;
      for (const char byte : character) {
        const std::int32_t id = (*byte_ids_)[static_cast<unsigned char>(byte)];
        complete = complete && id != kNone;
        ids.push_back(id);
      }
      if (complete) {
        continue;
      }
      ids.resize(before);
    }
    if (unknown_id_) {
      if (unknown_pending && !options_.fuse_unknown) {
        ids.push_back(*unknown_id_);
      }
      unknown_pending = true;
    }
  }
  if (unknown_pending) {
    ids.push_back(*unknown_id_);
  }
  return ids;
}

void BpeModel::encode(std::string_view word,
                      std::vector<std::int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const auto id = token_to_id(word)) {
      ids.push_back(*id);
      return;
    }
  }
  const std::vector<std::int32_t> start = characters(word);
  NIBBLE_CHECK(start.size() < static_cast<std::size_t>(
                                  std::numeric_limits<std::int32_t>::max()),
               kUnsupported,
               "word: found {} characters, expected fewer than 2^31",
               start.size());
  const auto count = static_cast<std::int32_t>(start.size());
  std::vector<Symbol> symbols;
  symbols.reserve(start.size());
  for (std::int32_t i = 0; i < count; ++i) {
    symbols.push_back({start[static_cast<std::size_t>(i)],
                       i - 1,
                       i + 1 < count ? i + 1 : kNone});
  }
  const auto symbol = [&](std::int32_t at) -> Symbol& {
    return symbols[static_cast<std::size_t>(at)];
  };

  std::priority_queue<Candidate> queue;
  const auto offer = [&](std::int32_t at) {
    if (at == kNone || symbol(at).next == kNone) {
      return;
    }
    const Merge* merge = find_merge(symbol(at).id, symbol(symbol(at).next).id);
    if (merge != nullptr) {
      queue.push({merge->rank, at, merge->id});
    }
  };
  for (std::int32_t i = 0; i < count; ++i) {
    offer(i);
  }
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbol(best.at);
    if (left.id == kGone || left.next == kNone) {
      continue;
    }
    // The neighbours may have changed since the pair was offered.
    Symbol& right = symbol(left.next);
    const Merge* merge = find_merge(left.id, right.id);
    if (merge == nullptr || merge->id != best.id) {
      continue;
    }
    left.id = merge->id;
    left.next = right.next;
    right.id = kGone;
    if (left.next != kNone) {
      symbol(left.next).previous = best.at;
    }
    offer(left.previous);
    offer(best.at);
  }
  for (std::int32_t at = count > 0 ? 0 : kNone; at != kNone;
       at = symbol(at).next) {
    ids.push_back(symbol(at).id);
  }
}

}  // namespace nibble::text
