#include "nibble/text/tokenizer/added_tokens.h"

#include <algorithm>

#include "nibble/text/unicode/utf8.h"

namespace nibble::text {
namespace {

// Start of the character that ends at text[end], end > 0.
std::size_t previous_start(std::string_view text, std::size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

bool word_before(std::string_view text, std::size_t at) {
  if (at == 0) {
    return false;
  }
  std::size_t start = previous_start(text, at);
  return is_word(next_code_point(text, start));
}

bool word_behind(std::string_view text, std::size_t at) {
  return at < text.size() && is_word(next_code_point(text, at));
}

std::size_t skip_space_back(std::string_view text, std::size_t at) {
  while (at > 0) {
    const std::size_t start = previous_start(text, at);
    std::size_t reader = start;
    if (!is_whitespace(next_code_point(text, reader))) {
      break;
    }
    at = start;
  }
  return at;
}

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t behind = at;
    if (!is_whitespace(next_code_point(text, behind))) {
      break;
    }
    at = behind;
  }
  return at;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<Entry> entries)
    : entries_(std::move(entries)), nodes_(1) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    std::uint32_t node = 0;
    for (const char c : entries_[i].spelling) {
      auto& next = nodes_[node].next;
      const auto known =
          std::find_if(next.begin(), next.end(), [&](const auto& p) {
            return p.first == c;
          });
      if (known != next.end()) {
        node = known->second;
        continue;
      }
      const auto fresh = static_cast<std::uint32_t>(nodes_.size());
      next.emplace_back(c, fresh);
      nodes_.emplace_back();
      node = fresh;
    }
    if (node != 0 && nodes_[node].entry < 0) {
      nodes_[node].entry = static_cast<std::int32_t>(i);
      starts_[static_cast<unsigned char>(entries_[i].spelling.front())] = true;
    }
  }
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::longest_at(
    std::string_view text, std::size_t begin) const {
  std::optional<Match> longest;
  std::uint32_t node = 0;
  for (std::size_t at = begin; at < text.size(); ++at) {
    const auto& next = nodes_[node].next;
    const auto found =
        std::find_if(next.begin(), next.end(), [&](const auto& p) {
          return p.first == text[at];
        });
    if (found == next.end()) {
      break;
    }
    node = found->second;
    if (nodes_[node].entry >= 0) {
      longest =
          Match{begin, at + 1, static_cast<std::size_t>(nodes_[node].entry)};
    }
  }
  return longest;
}

std::vector<Section> AddedTokenFinder::cut(std::string_view text) const {
  std::vector<Section> sections;
  std::size_t from = 0;  // end of what sections hold
  for (std::size_t at = 0; at < text.size();) {
    if (!starts_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const std::optional<Match> match = longest_at(text, at);
    if (!match) {
      ++at;
      continue;
    }
    // A match that single_word drops still hides others inside it.
    at = match->end;
    const AddedToken& token = entries_[match->entry].token;
    if (token.single_word &&
        (word_before(text, match->begin) || word_behind(text, match->end))) {
      continue;
    }
    const std::size_t begin =
        token.lstrip ? std::max(skip_space_back(text, match->begin), from)
                     : match->begin;
    const std::size_t end =
        token.rstrip ? skip_space(text, match->end) : match->end;
    if (from < begin) {
      sections.push_back({std::nullopt, text.substr(from, begin - from)});
    }
    sections.push_back(
        {token.id, text.substr(match->begin, end - match->begin)});
    from = end;
  }
  if (from < text.size()) {
    sections.push_back({std::nullopt, text.substr(from)});
  }
  return sections;
}

}  // namespace nibble::text
