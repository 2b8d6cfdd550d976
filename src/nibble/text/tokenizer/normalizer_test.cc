#include "nibble/text/tokenizer/normalizer.h"

#include <gtest/gtest.h>

namespace nibble::text {
namespace {

TEST(Normalizer, WithoutStepsChangesNothing) {
  EXPECT_EQ(Normalizer().apply("e\u0301"), "e\u0301");
}

TEST(Normalizer, NfcComposesAndOrdersMarks) {
  const Normalizer nfc({Normalizer::Nfc{}});
  EXPECT_EQ(nfc.apply("e\u0301"), "\u00E9");
  // Dot above and dot below: the lower one comes first, then both compose.
  EXPECT_EQ(nfc.apply("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(nfc.apply("\u1100\u1161"), "\uAC00");  // Hangul
  EXPECT_EQ(nfc.apply("\u212B"), "\u00C5");        // singleton
  EXPECT_EQ(nfc.apply("\uFB01"), "\uFB01");        // no compatibility forms
}

TEST(Normalizer, NfcKeepsTextBelowTheFirstCombiningMark) {
  const Normalizer nfc({Normalizer::Nfc{}});
  const std::string text = std::string("a\0b", 3) + "\u00E9\u02FF";
  EXPECT_EQ(nfc.apply(text), text);
  EXPECT_EQ(nfc.apply(text + "e\u0301"), text + "\u00E9");
}

TEST(Normalizer, StepsFollowEachOther) {
  const Normalizer llama(
      {Normalizer::Prepend{"\u2581"},
       Normalizer::Replace{Pattern::literal(" "), "\u2581"}});
  EXPECT_EQ(llama.apply("a b"),
            "\u2581"
            "a\u2581"
            "b");
  EXPECT_EQ(llama.apply(""), "");
}

}  // namespace
}  // namespace nibble::text
