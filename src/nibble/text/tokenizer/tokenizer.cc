#include "nibble/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <functional>

#include "nibble/base/error.h"
#include "nibble/text/unicode/utf8.h"

namespace nibble::text {
namespace {

// Above this many distinct words the cache of one call stops growing.
constexpr std::size_t kCachedWords = 1 << 16;
// Longer words repeat too rarely to keep.
constexpr std::size_t kCachedWordBytes = 64;

struct TransparentHash {
  using is_transparent = void;

  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};

}  // namespace

// One call of encode: collects ids and remembers the ids of words it has seen
// (natural text repeats most of its words).
class Tokenizer::Encoding {
 public:
  explicit Encoding(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add_text(std::string_view text, bool find_added_tokens) {
    if (!find_added_tokens) {
      add_section(text, true);
      return;
    }
    for (const Section& section : tokenizer_.raw_finder_.cut(text)) {
      if (section.token) {
        ids_.push_back(*section.token);
      } else {
        add_section(section.text, section.text.data() == text.data());
      }
    }
  }

  void add_template(std::string_view text) {
    for (const Section& section : tokenizer_.raw_finder_.cut(text)) {
      if (section.token) {
        ids_.push_back(*section.token);
        continue;
      }
      std::string plain(section.text);
      for (std::size_t at = plain.find(kGuard); at != std::string::npos;
           at = plain.find(kGuard, at)) {
        plain.erase(at, kGuard.size());
      }
      add_section(plain, section.text.data() == text.data());
    }
  }

  std::vector<std::int32_t>& ids() { return ids_; }

 private:
  void add_section(std::string_view raw, bool starts_input) {
    const TokenizerParts& parts = tokenizer_.parts_;
    const std::string text = parts.normalizer.apply(std::string(raw));
    for (const Section& section : tokenizer_.normalized_finder_.cut(text)) {
      if (section.token) {
        ids_.push_back(*section.token);
        continue;
      }
      const Pieces pieces = parts.pre_tokenizer.apply(
          std::string(section.text),
          starts_input && section.text.data() == text.data());
      for (const Range& range : pieces.ranges) {
        add_word(std::string_view(pieces.text)
                     .substr(range.begin, range.end - range.begin));
      }
    }
  }

  void add_word(std::string_view word) {
    if (word.size() > kCachedWordBytes) {
      tokenizer_.parts_.model.encode(word, ids_);
      return;
    }
    if (const auto known = words_.find(word); known != words_.end()) {
      ids_.insert(ids_.end(), known->second.begin(), known->second.end());
      return;
    }
    const auto begin = static_cast<std::ptrdiff_t>(ids_.size());
    tokenizer_.parts_.model.encode(word, ids_);
    if (words_.size() < kCachedWords) {
      words_.emplace(
          word, std::vector<std::int32_t>(ids_.begin() + begin, ids_.end()));
    }
  }

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;
  std::unordered_map<std::string,
                     std::vector<std::int32_t>,
                     TransparentHash,
                     std::equal_to<>>
      words_;
};

Tokenizer::Tokenizer(TokenizerParts parts)
    : parts_(std::move(parts)), vocabulary_(parts_.model.id_end()) {
  std::vector<AddedTokenFinder::Entry> raw;
  std::vector<AddedTokenFinder::Entry> normalized;
  for (std::size_t i = 0; i < parts_.added_tokens.size(); ++i) {
    const AddedToken& token = parts_.added_tokens[i];
    NIBBLE_CHECK(token.id >= 0 && token.id < BpeModel::kIdLimit,
                 kCorruptData,
                 "added_tokens[{}]: found id {}, expected 0 to {}",
                 i,
                 token.id,
                 BpeModel::kIdLimit - 1);
    const auto in_model = parts_.model.token_to_id(token.content);
    NIBBLE_CHECK(!in_model || *in_model == token.id,
                 kCorruptData,
                 "added_tokens[{}]: found id {} for '{}', expected {} as in "
                 "model.vocab",
                 i,
                 token.id,
                 printable(token.content),
                 *in_model);
    NIBBLE_CHECK(added_by_id_.emplace(token.id, i).second &&
                     added_by_content_.emplace(token.content, token.id).second,
                 kCorruptData,
                 "added_tokens[{}]: found '{}' with id {}, expected each token "
                 "and each id once",
                 i,
                 printable(token.content),
                 token.id);
    vocabulary_ = std::max(vocabulary_, token.id + 1);
    if (token.normalized) {
      normalized.push_back({parts_.normalizer.apply(token.content), token});
    } else {
      raw.push_back({token.content, token});
    }
  }
  raw_finder_ = AddedTokenFinder(std::move(raw));
  normalized_finder_ = AddedTokenFinder(std::move(normalized));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text,
                                            bool add_special) const {
  const std::string valid = to_valid_utf8(text);
  Encoding encoding(*this);
  std::vector<std::int32_t>& ids = encoding.ids();
  if (add_special) {
    ids = parts_.prefix;
  }
  encoding.add_text(valid, parts_.added_tokens_in_text);
  if (add_special) {
    ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
  }
  return std::move(ids);
}

std::vector<std::int32_t> Tokenizer::encode_template(
    std::string_view text) const {
  const std::string valid = to_valid_utf8(text);
  Encoding encoding(*this);
  encoding.add_template(valid);
  return std::move(encoding.ids());
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids,
                              bool skip_special) const {
  TokenStream tokens = stream(skip_special);
  std::string text;
  for (const std::int32_t id : ids) {
    text += tokens.push(id);
  }
  text += tokens.finish();
  return text;
}

TokenStream Tokenizer::stream(bool skip_special, bool continues) const {
  return {*this, skip_special, continues};
}

std::optional<std::int32_t> Tokenizer::token_to_id(
    std::string_view token) const {
  const auto added = added_by_content_.find(std::string(token));
  if (added != added_by_content_.end()) {
    return added->second;
  }
  return parts_.model.token_to_id(token);
}

std::optional<std::string_view> Tokenizer::id_to_token(std::int32_t id) const {
  const auto added = added_by_id_.find(id);
  if (added != added_by_id_.end()) {
    return parts_.added_tokens[added->second].content;
  }
  return parts_.model.id_to_token(id);
}

bool Tokenizer::is_special(std::int32_t id) const {
  const auto added = added_by_id_.find(id);
  return added != added_by_id_.end() &&
         parts_.added_tokens[added->second].special;
}

std::vector<std::int32_t> Tokenizer::special_ids() const {
  std::vector<std::int32_t> ids;
  for (const AddedToken& token : parts_.added_tokens) {
    if (token.special) {
      ids.push_back(token.id);
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

TokenStream::TokenStream(const Tokenizer& tokenizer,
                         bool skip_special,
                         bool continues)
    : tokenizer_(tokenizer),
      skip_special_(skip_special),
      decode_(tokenizer.parts_.decoder, continues) {}

std::string TokenStream::push(std::int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) {
    return {};
  }
  const std::optional<std::string_view> token = tokenizer_.id_to_token(id);
  return token ? decode_.push(std::string(*token)) : std::string();
}

}  // namespace nibble::text
