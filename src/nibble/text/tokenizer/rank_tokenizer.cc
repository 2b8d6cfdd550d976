#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "nibble/base/error.h"
#include "nibble/text/tokenizer/tokenizer.h"
#include "nibble/text/unicode/byte_level.h"

namespace nibble::text {
namespace {

// A generation of Llama whose rank file has this many lines.
struct Generation {
  std::size_t ranks;
  std::string_view pattern;
  std::vector<std::string> (*special_tokens)();
};

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama4Pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Appends <|prefix<first>|> to <|prefix<last>|>.
void append_reserved(std::vector<std::string>& names,
                     std::string_view prefix,
                     int first,
                     int last) {
  for (int i = first; i <= last; ++i) {
    names.push_back(fmt::format("<|{}{}|>", prefix, i));
  }
}

std::vector<std::string> llama3_tokens() {
  std::vector<std::string> names{"<|begin_of_text|>",
                                 "<|end_of_text|>",
                                 "<|reserved_special_token_0|>",
                                 "<|reserved_special_token_1|>",
                                 "<|finetune_right_pad_id|>",
                                 "<|step_id|>",
                                 "<|start_header_id|>",
                                 "<|end_header_id|>",
                                 "<|eom_id|>",
                                 "<|eot_id|>",
                                 "<|python_tag|>",
                                 "<|image|>"};
  append_reserved(names, "reserved_special_token_", 2, 245);
  return names;
}

std::vector<std::string> llama4_tokens() {
  std::vector<std::string> names{"<|begin_of_text|>",
                                 "<|end_of_text|>",
                                 "<|fim_prefix|>",
                                 "<|fim_middle|>",
                                 "<|fim_suffix|>",
                                 "<|header_start|>",
                                 "<|header_end|>",
                                 "<|eom|>",
                                 "<|eot|>",
                                 "<|step|>"};
  append_reserved(names, "text_post_train_reserved_special_token_", 0, 5);
  names.insert(
      names.end(),
      {"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"});
  append_reserved(names, "text_post_train_reserved_special_token_", 8, 68);
  names.insert(names.end(),
               {"<|image_start|>",
                "<|image_end|>",
                "<|vision_reserved_special_token_0|>",
                "<|vision_reserved_special_token_1|>",
                "<|tile_x_separator|>",
                "<|tile_y_separator|>"});
  append_reserved(names, "vision_reserved_special_token_", 2, 5);
  names.insert(
      names.end(),
      {"<|image|>", "<|vision_reserved_special_token_6|>", "<|patch|>"});
  append_reserved(names, "vision_reserved_special_token_", 7, 1047);
  append_reserved(names, "reasoning_reserved_special_token_", 0, 7);
  names.insert(names.end(),
               {"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"});
  append_reserved(names, "reserved_special_token_", 0, 903);
  return names;
}

constexpr std::array kGenerations{
    Generation{128000, kLlama3Pattern, llama3_tokens},
    Generation{200000, kLlama4Pattern, llama4_tokens},
};

// Value of a base64 digit (RFC 4648), or -1.
int base64_value(char c) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::size_t at = kDigits.find(c);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

std::optional<std::string> decode_base64(std::string_view text) {
  while (text.ends_with('=')) {
    text.remove_suffix(1);
  }
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) {
      return std::nullopt;
    }
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xFFu);
    }
  }
  return bytes;
}

// Tokens' bytes by rank.
std::vector<std::string> parse_ranks(std::string_view text) {
  std::vector<std::string> tokens;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t space = line.find(' ');
    std::size_t rank = 0;
    std::optional<std::string> bytes;
    if (space != std::string_view::npos) {
      const std::string_view number = line.substr(space + 1);
      const auto [stop, error] =
          std::from_chars(number.data(), number.data() + number.size(), rank);
      if (error == std::errc() && stop == number.data() + number.size()) {
        bytes = decode_base64(line.substr(0, space));
      }
    }
    NIBBLE_CHECK(bytes && !bytes->empty() && rank == tokens.size(),
                 kCorruptData,
                 "line {}: found '{}', expected base64 and the rank {}",
                 tokens.size() + 1,
                 printable(line),
                 tokens.size());
    tokens.push_back(std::move(*bytes));
  }
  return tokens;
}

using Vocabulary = std::vector<std::pair<std::string, std::int32_t>>;
using Merges = std::vector<std::pair<std::string, std::string>>;

// Merging the pair whose concatenation has the lowest rank is merging by a
// list of all ways to cut each token in two, in the order of ranks.
Merges merges_of(const std::vector<std::string>& tokens) {
  std::unordered_map<std::string_view, std::size_t> ranks;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ranks.emplace(tokens[i], i);
  }
  Merges merges;
  std::vector<std::tuple<std::size_t, std::size_t, std::size_t>> cuts;
  for (const std::string& token : tokens) {
    cuts.clear();
    for (std::size_t at = 1; at < token.size(); ++at) {
      const auto left = ranks.find(std::string_view(token).substr(0, at));
      const auto right = ranks.find(std::string_view(token).substr(at));
      if (left != ranks.end() && right != ranks.end()) {
        cuts.emplace_back(left->second, right->second, at);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    for (const auto& [left, right, at] : cuts) {
      std::string a;
      std::string b;
      append_byte_level(std::string_view(token).substr(0, at), a);
      append_byte_level(std::string_view(token).substr(at), b);
      merges.emplace_back(std::move(a), std::move(b));
    }
  }
  return merges;
}

}  // namespace

Tokenizer parse_rank_file(std::string_view text) {
  const std::vector<std::string> tokens = parse_ranks(text);
  const Generation* generation = nullptr;
  for (const Generation& known : kGenerations) {
    generation = known.ranks == tokens.size() ? &known : generation;
  }
  NIBBLE_CHECK(generation != nullptr,
               kUnsupported,
               "found {} ranks, expected 128000 (Llama 3) or 200000 (Llama 4)",
               tokens.size());
  Vocabulary vocabulary;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::string spelled;
    append_byte_level(tokens[i], spelled);
    vocabulary.emplace_back(std::move(spelled), static_cast<std::int32_t>(i));
  }
  BpeModel::Options options;
  options.ignore_merges = true;
  std::vector<AddedToken> added;
  for (std::string& name : generation->special_tokens()) {
    AddedToken token;
    token.id = static_cast<std::int32_t>(tokens.size() + added.size());
    token.content = std::move(name);
    token.special = true;
    added.push_back(std::move(token));
  }
  const std::int32_t begin_of_text = added.front().id;
  return Tokenizer(TokenizerParts{
      .added_tokens = std::move(added),
      .normalizer = {},
      .pre_tokenizer = PreTokenizer(
          {PreTokenizer::Split{Pattern::regex(generation->pattern)},
           PreTokenizer::ByteLevel{false, false}}),
      .model = BpeModel(std::move(vocabulary), merges_of(tokens), options),
      .added_tokens_in_text = false,
      .prefix = {begin_of_text},
      .suffix = {},
      .decoder = Decoder({Decoder::ByteLevel{}})});
}

}  // namespace nibble::text
