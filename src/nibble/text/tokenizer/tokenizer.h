#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "nibble/text/tokenizer/added_tokens.h"
#include "nibble/text/tokenizer/bpe.h"
#include "nibble/text/tokenizer/decoder.h"
#include "nibble/text/tokenizer/normalizer.h"
#include "nibble/text/tokenizer/pre_tokenizer.h"

namespace nibble::text {

// What a tokenizer is made of, in the order text passes through it.
struct TokenizerParts {
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  // Whether added tokens spelled out in any text are these tokens (as
  // tokenizer.json has it) or ordinary text, unless the text is a rendered
  // chat template (as Meta's tokenizers have it).
  bool added_tokens_in_text = true;
  // Ids put around a text that is encoded with specials.
  std::vector<std::int32_t> prefix;
  std::vector<std::int32_t> suffix;
  Decoder decoder;
};

class Tokenizer;

// Decoding of one sequence, id by id, for showing text while it is generated.
// The tokenizer must outlive it.
class TokenStream {
 public:
  // Complete UTF-8 that this id adds to the text; often empty.
  [[nodiscard]] std::string push(std::int32_t id);

  // Text that was held back. Nothing may be pushed afterwards.
  [[nodiscard]] std::string finish() { return decode_.finish(); }

 private:
  friend class Tokenizer;
  TokenStream(const Tokenizer& tokenizer, bool skip_special, bool continues);

  const Tokenizer& tokenizer_;
  bool skip_special_;
  DecodeStream decode_;
};

// Put inside something that is spelled like a special token, it makes ordinary
// text of it. A code point that no text has: U+FDD0.
inline constexpr std::string_view kGuard = "\xEF\xB7\x90";

// Text to token ids and back. Immutable and safe to use from several threads.
// The file form is described in docs/formats/tokenizer.md.
class Tokenizer {
 public:
  // kCorruptData when an added token contradicts the vocabulary or another.
  explicit Tokenizer(TokenizerParts parts);

  // Ids of text; what is not UTF-8 in it is read as U+FFFD. add_special puts
  // the ids of the file's template (such as begin-of-text) around it. Added
  // tokens that are spelled out in text are found either way, but for
  // tokenizers without added_tokens_in_text.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 bool add_special = true) const;

  // Ids of a rendered chat template, which spells out its special tokens; none
  // are put around it. kGuard stands for nothing.
  [[nodiscard]] std::vector<std::int32_t> encode_template(
      std::string_view text) const;

  // Text of ids. An id that no token has adds nothing: models have rows
  // beyond the vocabulary. skip_special leaves special tokens out.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids,
                                   bool skip_special = false) const;
  // continues: the text goes on behind other text, so the space that Llama 2
  // puts in front of every text is kept.
  [[nodiscard]] TokenStream stream(bool skip_special = false,
                                   bool continues = false) const;

  [[nodiscard]] std::optional<std::int32_t> token_to_id(
      std::string_view token) const;
  // The token as the file spells it (byte-level: in that alphabet); valid
  // while the tokenizer lives.
  [[nodiscard]] std::optional<std::string_view> id_to_token(
      std::int32_t id) const;
  [[nodiscard]] bool is_special(std::int32_t id) const;
  // Ids of special tokens, ascending.
  [[nodiscard]] std::vector<std::int32_t> special_ids() const;

  // One more than the highest id.
  [[nodiscard]] std::int32_t vocabulary() const { return vocabulary_; }

 private:
  friend class TokenStream;
  class Encoding;

  TokenizerParts parts_;
  std::unordered_map<std::int32_t, std::size_t> added_by_id_;
  std::unordered_map<std::string, std::int32_t> added_by_content_;
  AddedTokenFinder raw_finder_;         // in the text as given
  AddedTokenFinder normalized_finder_;  // in normalized text
  std::int32_t vocabulary_ = 0;
};

// Whether a model directory has a tokenizer that load_tokenizer would read.
[[nodiscard]] bool has_tokenizer(const std::filesystem::path& directory);

// The tokenizer of a model directory: tokenizer.json, else tokenizer.model of
// either kind. kNotFound when there is none; otherwise as parse_tokenizer,
// load_sentencepiece or parse_rank_file.
[[nodiscard]] Tokenizer load_tokenizer(const std::filesystem::path& directory);

// A tokenizer from the content of a tokenizer.json. kCorruptData with the
// place when it contradicts its form, kUnsupported with the name when it asks
// for a component that is not known here.
[[nodiscard]] Tokenizer parse_tokenizer(std::string_view json);

// A tokenizer from Meta's tokenizer.model of Llama 3 and 4: a line a token,
// base64 of its bytes and its rank. Which generation's pattern and special
// tokens go with it follows from the number of ranks. kCorruptData for lines
// of another form, kUnsupported for another number.
[[nodiscard]] Tokenizer parse_rank_file(std::string_view text);

// A tokenizer from a SentencePiece BPE model (Llama 2). kCorruptData when the
// library cannot read it, kUnsupported for models of another type.
[[nodiscard]] Tokenizer load_sentencepiece(const std::filesystem::path& path);

}  // namespace nibble::text
