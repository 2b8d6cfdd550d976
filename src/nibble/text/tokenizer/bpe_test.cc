#include "nibble/text/tokenizer/bpe.h"

#include <chrono>
#include <random>

#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble::text {
namespace {

using Ids = std::vector<std::int32_t>;
using Vocabulary = std::vector<std::pair<std::string, std::int32_t>>;
using Merges = std::vector<std::pair<std::string, std::string>>;

Ids encode(const BpeModel& model, const std::string& word) {
  Ids ids;
  model.encode(word, ids);
  return ids;
}

const Vocabulary kVocabulary = {
    {"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}, {"abc", 5}, {"aa", 6}};

TEST(Bpe, TheLowestRankMergesFirst) {
  const BpeModel model(kVocabulary, {{"b", "c"}, {"a", "b"}}, {});
  EXPECT_EQ(encode(model, "abc"), (Ids{0, 4}));
  const BpeModel other(kVocabulary, {{"a", "b"}, {"b", "c"}}, {});
  EXPECT_EQ(encode(other, "abc"), (Ids{3, 2}));
}

TEST(Bpe, EqualPairsMergeFromTheLeft) {
  const BpeModel model(kVocabulary, {{"a", "a"}}, {});
  EXPECT_EQ(encode(model, "aaa"), (Ids{6, 0}));
  EXPECT_EQ(encode(model, "aaaa"), (Ids{6, 6}));
}

TEST(Bpe, MergedTokensMergeOn) {
  const BpeModel model(kVocabulary, {{"a", "b"}, {"ab", "c"}}, {});
  EXPECT_EQ(encode(model, "abcabc"), (Ids{5, 5}));
  EXPECT_EQ(encode(model, ""), Ids{});
}

TEST(Bpe, AWholeTokenIsTakenWhereMergesAreIgnored) {
  BpeModel::Options options;
  options.ignore_merges = true;
  const BpeModel model(kVocabulary, {{"a", "b"}}, options);
  EXPECT_EQ(encode(model, "abc"), Ids{5});
  EXPECT_EQ(encode(model, "abca"), (Ids{3, 2, 0}));
}

TEST(Bpe, UnknownCharactersAreDroppedWithoutAnUnknownToken) {
  const BpeModel model(kVocabulary, {}, {});
  EXPECT_EQ(encode(model,
                   "a\u00E9"
                   "b"),
            (Ids{0, 1}));
}

TEST(Bpe, UnknownCharactersGiveOneTokenEachOrTogether) {
  Vocabulary vocabulary = kVocabulary;
  vocabulary.emplace_back("<unk>", 9);
  BpeModel::Options options;
  options.unknown_token = "<unk>";
  EXPECT_EQ(encode(BpeModel(vocabulary, {}, options), "xya\u00E9"),
            (Ids{9, 9, 0, 9}));
  options.fuse_unknown = true;
  EXPECT_EQ(encode(BpeModel(vocabulary, {}, options), "xya\u00E9"),
            (Ids{9, 0, 9}));
}

TEST(Bpe, UnknownCharactersFallBackToTheirBytes) {
  Vocabulary vocabulary = {
      {"a", 0}, {"<unk>", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}};
  BpeModel::Options options;
  options.byte_fallback = true;
  options.unknown_token = "<unk>";
  const BpeModel model(vocabulary, {}, options);
  EXPECT_EQ(encode(model, "a\u00E9"), (Ids{0, 2, 3}));
  EXPECT_EQ(encode(model, "\u00E8"), Ids{1});  // <0xA8> is missing
}

TEST(Bpe, IdsMayHaveGaps) {
  const BpeModel model({{"a", 0}, {"b", 5}}, {}, {});
  EXPECT_EQ(model.id_end(), 6);
  EXPECT_EQ(model.id_to_token(5), "b");
  EXPECT_EQ(model.id_to_token(3), std::nullopt);
  EXPECT_EQ(model.id_to_token(6), std::nullopt);
  EXPECT_EQ(model.id_to_token(-1), std::nullopt);
  EXPECT_EQ(model.token_to_id("b"), 5);
  EXPECT_EQ(model.token_to_id("x"), std::nullopt);
}

// The textbook procedure: look for the best pair, merge it, start over.
Ids encode_slowly(const std::string& word,
                  const Vocabulary& vocabulary,
                  const Merges& merges) {
  std::vector<std::string> parts;
  for (const char c : word) {
    parts.emplace_back(1, c);
  }
  while (true) {
    std::size_t best_rank = merges.size();
    std::size_t best = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      for (std::size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank] == std::pair(parts[i], parts[i + 1])) {
          best_rank = rank;
          best = i;
        }
      }
    }
    if (best_rank == merges.size()) {
      break;
    }
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) {
    for (const auto& [token, id] : vocabulary) {
      if (token == part) {
        ids.push_back(id);
      }
    }
  }
  return ids;
}

TEST(Bpe, AgreesWithTheTextbookOnRandomMerges) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Vocabulary vocabulary = {{"a", 0}, {"b", 1}, {"c", 2}};
    Merges merges;
    for (int i = 0; i < 20; ++i) {
      const std::string left = vocabulary[random() % vocabulary.size()].first;
      const std::string right = vocabulary[random() % vocabulary.size()].first;
      const bool known = std::any_of(
          vocabulary.begin(), vocabulary.end(), [&](const auto& entry) {
            return entry.first == left + right;
          });
      if (!known && left.size() + right.size() < 12) {
        vocabulary.emplace_back(left + right,
                                static_cast<std::int32_t>(vocabulary.size()));
        merges.emplace_back(left, right);
      }
    }
    const BpeModel model(vocabulary, merges, {});
    std::string word;
    for (int i = 0; i < 60; ++i) {
      word += static_cast<char>('a' + random() % 3);
      ASSERT_EQ(encode(model, word), encode_slowly(word, vocabulary, merges))
          << "round " << round << " " << word;
    }
  }
}

// One word of a million characters: quadratic merging would take hours.
TEST(Bpe, LongWordsTakeLittleMoreThanLinearTime) {
  const BpeModel model(kVocabulary, {{"a", "b"}, {"ab", "c"}, {"a", "a"}}, {});
  std::string word;
  for (int i = 0; i < 200'000; ++i) {
    word += "aabca";
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(encode(model, word).empty());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Bpe, RefusesAVocabularyThatContradictsItself) {
  expect_error(
      ErrorCode::kCorruptData, "found no token", [] { BpeModel({}, {}, {}); });
  expect_error(ErrorCode::kCorruptData, "which 'a' has too", [] {
    BpeModel({{"a", 0}, {"b", 0}}, {}, {});
  });
  expect_error(ErrorCode::kCorruptData, "found id -1", [] {
    BpeModel({{"a", -1}}, {}, {});
  });
  expect_error(ErrorCode::kCorruptData, "found id 4194304", [] {
    BpeModel({{"a", BpeModel::kIdLimit}}, {}, {});
  });
}

TEST(Bpe, RefusesMergesOutsideTheVocabulary) {
  expect_error(ErrorCode::kCorruptData, "merges[1]: found 'x'", [] {
    BpeModel(kVocabulary, {{"a", "b"}, {"a", "x"}}, {});
  });
  expect_error(ErrorCode::kCorruptData, "merges[0]: found 'ac'", [] {
    BpeModel(kVocabulary, {{"a", "c"}}, {});
  });
  BpeModel::Options options;
  options.unknown_token = "<unk>";
  expect_error(ErrorCode::kCorruptData, "unk_token: found '<unk>'", [&] {
    BpeModel(kVocabulary, {}, options);
  });
}

}  // namespace
}  // namespace nibble::text
