#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "nibble/text/unicode/pattern.h"

namespace nibble::text {

// Turns token strings back into text: the "decoder" of tokenizer.json as a
// list of steps (nested sequences flattened). Immutable.
class Decoder {
 public:
  // Tokens in the alphabet of byte_level.h become bytes, then UTF-8.
  struct ByteLevel {};

  // Runs of <0xXX> tokens become UTF-8; U+FFFD for each byte of a run that is
  // not valid.
  struct ByteFallback {};

  // Later steps see one token.
  struct Fuse {};

  struct Replace {
    Pattern pattern;
    std::string content;
  };

  // Takes up to start characters equal to content from the front of each
  // token and up to stop from its back.
  struct Strip {
    std::string content;  // one character
    std::size_t start = 0;
    std::size_t stop = 0;
  };

  // The replacement character becomes a space; in the first token it
  // disappears when drop_first.
  struct Metaspace {
    std::string replacement;
    bool drop_first = true;
  };

  using Step =
      std::variant<ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace>;

  // Joins tokens with spaces, as tokenizers without a decoder do.
  Decoder() = default;
  // kUnsupported when a step other than Strip follows one that fuses.
  explicit Decoder(std::vector<Step> steps);

  [[nodiscard]] bool joins_with_spaces() const { return !steps_.has_value(); }

  [[nodiscard]] const std::vector<Step>& steps() const { return *steps_; }

 private:
  std::optional<std::vector<Step>> steps_;
};

// Decoding of one sequence, token by token. What it returns is complete UTF-8
// and final: the concatenation of all output does not depend on when it is
// asked for. The decoder must outlive it.
class DecodeStream {
 public:
  class Stage;  // one step with its state

  // continues: the text goes on behind other text, so nothing is stripped
  // from its beginning.
  explicit DecodeStream(const Decoder& decoder, bool continues = false);
  DecodeStream(DecodeStream&&) noexcept;
  DecodeStream& operator=(DecodeStream&&) noexcept;
  ~DecodeStream();

  // Text that this token completes; often empty.
  [[nodiscard]] std::string push(std::string token);
  // Text that was held back. Nothing may be pushed afterwards.
  [[nodiscard]] std::string finish();

 private:
  void feed(std::size_t stage, std::string token, std::string& out);

  std::vector<std::unique_ptr<Stage>> stages_;
};

}  // namespace nibble::text
