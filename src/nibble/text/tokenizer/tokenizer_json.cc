// Reads tokenizer.json; the form is described in docs/formats/tokenizer.md.

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/text/tokenizer/json_node.h"
#include "nibble/text/tokenizer/tokenizer.h"
#include "nibble/text/unicode/utf8.h"

namespace nibble::text {
namespace {

// Sequences in sequences deeper than this are nobody's tokenizer.
constexpr int kDepthLimit = 16;

[[noreturn]] void refuse(const JsonNode& node,
                         std::string_view found,
                         std::string_view known) {
  fail_with_hint(ErrorCode::kUnsupported,
                 "this tokenizer needs a component that is not built in",
                 "{}: found {}, expected one of {}",
                 node.place(),
                 printable(found),
                 known);
}

// Calls read(component, out) for node, or for each component of a sequence.
template <typename Step, typename Read>
void read_sequence(const JsonNode& node,
                   std::string_view list,
                   int depth,
                   std::vector<Step>& out,
                   Read read) {
  NIBBLE_CHECK(depth < kDepthLimit,
               kUnsupported,
               "{}: found more than {} nested sequences",
               node.place(),
               kDepthLimit);
  if (node.at("type").string() != "Sequence") {
    read(node, out);
    return;
  }
  for (const JsonNode& inner : node.at(list).elements()) {
    read_sequence(inner, list, depth + 1, out, read);
  }
}

Pattern read_pattern(const JsonNode& node) {
  if (const auto text = node.find("String")) {
    return Pattern::literal(text->string());
  }
  if (const auto text = node.find("Regex")) {
    return with_context(text->place(),
                        [&] { return Pattern::regex(text->string()); });
  }
  node.fail_expected("{\"String\": ...} or {\"Regex\": ...}");
}

std::string read_character(const JsonNode& node) {
  const std::string& text = node.string();
  if (text.empty() || utf8_length(text.front()) != text.size()) {
    node.fail_expected("one character");
  }
  return text;
}

void read_normalizer(const JsonNode& node,
                     std::vector<Normalizer::Step>& steps) {
  const std::string& type = node.at("type").string();
  if (type == "NFC") {
    steps.emplace_back(Normalizer::Nfc{});
  } else if (type == "Prepend") {
    steps.emplace_back(Normalizer::Prepend{node.at("prepend").string()});
  } else if (type == "Replace") {
    steps.emplace_back(Normalizer::Replace{read_pattern(node.at("pattern")),
                                           node.at("content").string()});
  } else {
    refuse(node, type, "NFC, Prepend, Replace, Sequence");
  }
}

PreTokenizer::Behavior read_behavior(const JsonNode& node) {
  using Behavior = PreTokenizer::Behavior;
  static constexpr std::pair<std::string_view, Behavior> kNames[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous},
  };
  for (const auto& [name, behavior] : kNames) {
    if (name == node.string()) {
      return behavior;
    }
  }
  node.fail_expected(
      "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

// Both spellings of the same choice: prepend_scheme, or add_prefix_space in
// older files.
PreTokenizer::Metaspace::Prepend read_prepend(const JsonNode& node) {
  using Prepend = PreTokenizer::Metaspace::Prepend;
  const auto scheme = node.find("prepend_scheme");
  const bool prefix = node.boolean("add_prefix_space", true);
  if (!scheme) {
    return prefix ? Prepend::kAlways : Prepend::kNever;
  }
  const std::string& name = scheme->string();
  if (name == "never") {
    return Prepend::kNever;
  }
  if (name != "always" && name != "first") {
    scheme->fail_expected("always, first or never");
  }
  NIBBLE_CHECK(prefix,
               kCorruptData,
               "{}: found {} beside add_prefix_space false, expected never",
               scheme->place(),
               name);
  return name == "first" ? Prepend::kFirst : Prepend::kAlways;
}

void read_pre_tokenizer(const JsonNode& node,
                        std::vector<PreTokenizer::Step>& steps) {
  const std::string& type = node.at("type").string();
  if (type == "ByteLevel") {
    steps.emplace_back(
        PreTokenizer::ByteLevel{node.boolean("add_prefix_space", true),
                                node.boolean("use_regex", true)});
  } else if (type == "Split") {
    steps.emplace_back(PreTokenizer::Split{read_pattern(node.at("pattern")),
                                           read_behavior(node.at("behavior")),
                                           node.boolean("invert", false)});
  } else if (type == "Digits") {
    steps.emplace_back(
        PreTokenizer::Digits{node.boolean("individual_digits", false)});
  } else if (type == "Metaspace") {
    steps.emplace_back(
        PreTokenizer::Metaspace{read_character(node.at("replacement")),
                                read_prepend(node),
                                node.boolean("split", true)});
  } else {
    refuse(node, type, "ByteLevel, Split, Digits, Metaspace, Sequence");
  }
}

void read_decoder(const JsonNode& node, std::vector<Decoder::Step>& steps) {
  const std::string& type = node.at("type").string();
  if (type == "ByteLevel") {
    steps.emplace_back(Decoder::ByteLevel{});
  } else if (type == "ByteFallback") {
    steps.emplace_back(Decoder::ByteFallback{});
  } else if (type == "Fuse") {
    steps.emplace_back(Decoder::Fuse{});
  } else if (type == "Replace") {
    steps.emplace_back(Decoder::Replace{read_pattern(node.at("pattern")),
                                        node.at("content").string()});
  } else if (type == "Strip") {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    steps.emplace_back(Decoder::Strip{
        read_character(node.at("content")),
        static_cast<std::size_t>(node.at("start").integer(0, kMost)),
        static_cast<std::size_t>(node.at("stop").integer(0, kMost))});
  } else if (type == "Metaspace") {
    steps.emplace_back(Decoder::Metaspace{
        read_character(node.at("replacement")),
        read_prepend(node) != PreTokenizer::Metaspace::Prepend::kNever});
  } else {
    refuse(node,
           type,
           "ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, "
           "Sequence");
  }
}

// Ids that one post-processor puts around a text.
struct Frame {
  std::vector<std::int32_t> prefix;
  std::vector<std::int32_t> suffix;
};

void read_template(const JsonNode& node, Frame& frame) {
  bool behind_text = false;
  for (const JsonNode& item : node.at("single").elements()) {
    if (const auto sequence = item.find("Sequence")) {
      NIBBLE_CHECK(!behind_text && sequence->at("id").string() == "A",
                   kUnsupported,
                   "{}: found another sequence than one A",
                   item.place());
      behind_text = true;
      continue;
    }
    const std::string& name = item.at("SpecialToken").at("id").string();
    const JsonNode token = node.at("special_tokens").at(name);
    for (const JsonNode& id : token.at("ids").elements()) {
      (behind_text ? frame.suffix : frame.prefix)
          .push_back(
              static_cast<std::int32_t>(id.integer(0, BpeModel::kIdLimit - 1)));
    }
  }
  NIBBLE_CHECK(behind_text,
               kCorruptData,
               "{}.single: found no Sequence A, expected one",
               node.place());
}

void read_post_processor(const JsonNode& node, std::vector<Frame>& frames) {
  const std::string& type = node.at("type").string();
  if (type == "TemplateProcessing") {
    read_template(node, frames.emplace_back());
  } else if (type != "ByteLevel") {  // which changes offsets, not ids
    refuse(node, type, "TemplateProcessing, ByteLevel, Sequence");
  }
}

std::pair<std::string, std::string> read_merge(const nlohmann::json& merge,
                                               std::size_t index) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
      merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(),
            merge[1].get_ref<const std::string&>()};
  }
  if (merge.is_string()) {
    const std::string& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos &&
        text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  JsonNode(merge, fmt::format("model.merges[{}]", index))
      .fail_expected("\"left right\" or [\"left\", \"right\"]");
}

std::vector<std::pair<std::string, std::int32_t>> read_vocabulary(
    const JsonNode& node) {
  if (!node.value().is_object()) {
    node.fail_expected("an object of token: id");
  }
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;
  vocabulary.reserve(node.value().size());
  for (const auto& [token, id] : node.value().items()) {
    if (!id.is_number_unsigned() ||
        id.get<std::uint64_t>() >= BpeModel::kIdLimit) {
      JsonNode(id, fmt::format("model.vocab['{}']", printable(token)))
          .fail_expected(
              fmt::format("an id from 0 to {}", BpeModel::kIdLimit - 1));
    }
    vocabulary.emplace_back(token, id.get<std::int32_t>());
  }
  return vocabulary;
}

// Features of other tokenizers' models that would change the ids.
void refuse_foreign_options(const JsonNode& node) {
  const auto type = node.find("type");  // absent in old files
  if (type && type->string() != "BPE") {
    refuse(*type, type->string(), "BPE");
  }
  const auto dropout = node.find("dropout");
  NIBBLE_CHECK(!dropout || dropout->value() == 0,
               kUnsupported,
               "model.dropout: found {}, expected null: ids would be random",
               dropout->value().dump());
  for (const std::string_view key :
       {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto affix = node.find(key);
    NIBBLE_CHECK(!affix || affix->string().empty(),
                 kUnsupported,
                 "{}: found '{}', expected none",
                 affix->place(),
                 printable(affix->string()));
  }
}

BpeModel read_model(const JsonNode& node) {
  refuse_foreign_options(node);
  BpeModel::Options options;
  options.byte_fallback = node.boolean("byte_fallback", false);
  options.fuse_unknown = node.boolean("fuse_unk", false);
  options.ignore_merges = node.boolean("ignore_merges", false);
  if (const auto unknown = node.find("unk_token")) {
    options.unknown_token = unknown->string();
  }
  const JsonNode merges = node.at("merges");
  if (!merges.value().is_array()) {
    merges.fail_expected("an array");
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  pairs.reserve(merges.value().size());
  for (const nlohmann::json& merge : merges.value()) {
    pairs.push_back(read_merge(merge, pairs.size()));
  }
  auto vocabulary = read_vocabulary(node.at("vocab"));
  return with_context("model", [&] {
    return BpeModel(std::move(vocabulary), pairs, std::move(options));
  });
}

std::vector<AddedToken> read_added_tokens(const JsonNode& root) {
  std::vector<AddedToken> tokens;
  const auto list = root.find("added_tokens");
  if (!list) {
    return tokens;
  }
  for (const JsonNode& node : list->elements()) {
    AddedToken token;
    token.id = static_cast<std::int32_t>(
        node.at("id").integer(0, BpeModel::kIdLimit - 1));
    token.content = node.at("content").string();
    token.single_word = node.boolean("single_word", false);
    token.lstrip = node.boolean("lstrip", false);
    token.rstrip = node.boolean("rstrip", false);
    token.normalized = node.boolean("normalized", false);
    token.special = node.boolean("special", false);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

Tokenizer read_tokenizer(const JsonNode& root) {
  std::vector<Normalizer::Step> normalizer;
  if (const auto node = root.find("normalizer")) {
    read_sequence(*node, "normalizers", 0, normalizer, read_normalizer);
  }
  std::vector<PreTokenizer::Step> pre_tokenizer;
  if (const auto node = root.find("pre_tokenizer")) {
    read_sequence(*node, "pretokenizers", 0, pre_tokenizer, read_pre_tokenizer);
  }
  std::vector<Frame> frames;
  if (const auto node = root.find("post_processor")) {
    read_sequence(*node, "processors", 0, frames, read_post_processor);
  }
  Decoder decoder;
  if (const auto node = root.find("decoder")) {
    std::vector<Decoder::Step> steps;
    read_sequence(*node, "decoders", 0, steps, read_decoder);
    decoder = Decoder(std::move(steps));
  }
  TokenizerParts parts{.added_tokens = read_added_tokens(root),
                       .normalizer = Normalizer(std::move(normalizer)),
                       .pre_tokenizer = PreTokenizer(std::move(pre_tokenizer)),
                       .model = read_model(root.at("model")),
                       .added_tokens_in_text = true,
                       .prefix = {},
                       .suffix = {},
                       .decoder = std::move(decoder)};
  for (const Frame& frame : frames) {  // each goes around the ones before
    parts.prefix.insert(
        parts.prefix.begin(), frame.prefix.begin(), frame.prefix.end());
    parts.suffix.insert(
        parts.suffix.end(), frame.suffix.begin(), frame.suffix.end());
  }
  return Tokenizer(std::move(parts));
}

// tokenizer.model: text of base64 lines, or SentencePiece's protocol buffer,
// whose first field (a piece) begins with a line feed.
Tokenizer load_model_file(const std::filesystem::path& path) {
  const std::string content = read_text_file(path);
  return content.starts_with('\n') ? load_sentencepiece(path)
                                   : parse_rank_file(content);
}

}  // namespace

Tokenizer parse_tokenizer(std::string_view json) {
  const nlohmann::json document = parse_json(json);
  return read_tokenizer(JsonNode(document, ""));
}

constexpr const char* kJsonName = "tokenizer.json";
constexpr const char* kModelName = "tokenizer.model";

bool has_tokenizer(const std::filesystem::path& directory) {
  return std::filesystem::exists(directory / kJsonName) ||
         std::filesystem::exists(directory / kModelName);
}

Tokenizer load_tokenizer(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kJsonName;
  const std::filesystem::path model = directory / kModelName;
  if (!std::filesystem::exists(path) && std::filesystem::exists(model)) {
    return with_context(model.string(), [&] { return load_model_file(model); });
  }
  NIBBLE_CHECK(std::filesystem::exists(directory),
               kNotFound,
               "{}: found no such directory",
               directory.string());
  if (!std::filesystem::exists(path)) {
    fail_with_hint(ErrorCode::kNotFound,
                   "copy the tokenizer from where the weights come from",
                   "{}: found no tokenizer, expected tokenizer.json or "
                   "tokenizer.model",
                   directory.string());
  }
  return with_context(path.string(),
                      [&] { return parse_tokenizer(read_text_file(path)); });
}

}  // namespace nibble::text
