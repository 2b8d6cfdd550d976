#include <algorithm>
#include <sentencepiece_processor.h>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nibble/base/error.h"
#include "nibble/text/tokenizer/tokenizer.h"

namespace nibble::text {
namespace {

constexpr std::string_view kSpace = "\u2581";  // stands for a space

using Vocabulary = std::vector<std::pair<std::string, std::int32_t>>;
using Merges = std::vector<std::pair<std::string, std::string>>;

// SentencePiece merges the pair whose piece has the highest score, leftmost
// first: a list of all ways to cut each piece in two, by falling score.
Merges merges_of(const sentencepiece::SentencePieceProcessor& model) {
  std::unordered_map<std::string, int> ids;
  for (int i = 0; i < model.GetPieceSize(); ++i) {
    ids.emplace(model.IdToPiece(i), i);
  }
  // (score, left id, right id, piece, where it is cut)
  std::vector<std::tuple<float, int, int, int, std::size_t>> cuts;
  for (int i = 0; i < model.GetPieceSize(); ++i) {
    if (model.IsControl(i) || model.IsUnknown(i) || model.IsByte(i)) {
      continue;
    }
    const std::string& piece = model.IdToPiece(i);
    for (std::size_t at = 1; at < piece.size(); ++at) {
      const auto left = ids.find(piece.substr(0, at));
      const auto right = ids.find(piece.substr(at));
      if (left != ids.end() && right != ids.end()) {
        cuts.emplace_back(
            -model.GetScore(i), left->second, right->second, i, at);
      }
    }
  }
  std::sort(cuts.begin(), cuts.end());
  Merges merges;
  merges.reserve(cuts.size());
  for (const auto& [score, left, right, piece, at] : cuts) {
    merges.emplace_back(model.IdToPiece(left), model.IdToPiece(right));
  }
  return merges;
}

}  // namespace

Tokenizer load_sentencepiece(const std::filesystem::path& path) {
  sentencepiece::SentencePieceProcessor model;
  const auto status = model.Load(path.string());
  NIBBLE_CHECK(status.ok(),
               kCorruptData,
               "found no SentencePiece model: {}",
               printable(status.ToString()));
  Vocabulary vocabulary;
  std::vector<AddedToken> added;
  bool bytes = false;
  for (int i = 0; i < model.GetPieceSize(); ++i) {
    vocabulary.emplace_back(model.IdToPiece(i), i);
    bytes = bytes || model.IsByte(i);
    if (model.IsControl(i)) {
      AddedToken token;
      token.id = i;
      token.content = model.IdToPiece(i);
      token.special = true;
      added.push_back(std::move(token));
    }
  }
  NIBBLE_CHECK(bytes,
               kUnsupported,
               "found a SentencePiece model without byte pieces, expected BPE "
               "with byte fallback as Llama 2 has it");
  BpeModel::Options options;
  options.byte_fallback = true;
  options.fuse_unknown = true;
  options.unknown_token = model.IdToPiece(model.unk_id());
  std::vector<std::int32_t> prefix;
  if (model.bos_id() >= 0) {
    prefix.push_back(model.bos_id());
  }
  const std::string space(kSpace);
  return Tokenizer(TokenizerParts{
      .added_tokens = std::move(added),
      .normalizer =
          Normalizer({Normalizer::Prepend{space},
                      Normalizer::Replace{Pattern::literal(" "), space}}),
      .pre_tokenizer = {},
      .model = BpeModel(std::move(vocabulary), merges_of(model), options),
      .added_tokens_in_text = false,
      .prefix = std::move(prefix),
      .suffix = {},
      .decoder = Decoder({Decoder::Replace{Pattern::literal(space), " "},
                          Decoder::ByteFallback{},
                          Decoder::Fuse{},
                          Decoder::Strip{" ", 1, 0}})});
}

}  // namespace nibble::text
