#include "nibble/base/error.h"

#include <cerrno>
#include <string>

#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble {
namespace {

TEST(Error, CarriesCodeMessageAndHint) {
  try {
    fail_with_hint(ErrorCode::kBadRecipe,
                   "use group 64",
                   "x: found {}, expected {}",
                   1,
                   2);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadRecipe);
    EXPECT_STREQ(error.what(), "x: found 1, expected 2");
    EXPECT_EQ(error.hint(), "use group 64");
    return;
  }
  FAIL() << "nothing was thrown";
}

TEST(Error, CheckThrowsOnlyWhenItsConditionFails) {
  EXPECT_NO_THROW(NIBBLE_CHECK(1 + 1 == 2, kInternal, "never"));
  expect_error(ErrorCode::kCorruptData, "found 3", [] {
    NIBBLE_CHECK(1 + 1 == 3, kCorruptData, "found {}", 3);
  });
}

TEST(Error, ContextPrefixesThePlaceAndKeepsTheRest) {
  try {
    with_context("a.safetensors", [] {
      with_context("tensor x", [] {
        fail_with_hint(ErrorCode::kNotFound, "look again", "found none");
      });
    });
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a.safetensors: tensor x: found none");
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_EQ(error.hint(), "look again");
    return;
  }
  FAIL() << "nothing was thrown";
}

TEST(Error, ContextReturnsTheResultOfItsStep) {
  EXPECT_EQ(with_context("here", [] { return 7; }), 7);
}

TEST(Error, ErrnoTextNamesOperationPathAndReason) {
  expect_error(ErrorCode::kIo, "open: /x: No such file or directory", [] {
    errno = ENOENT;
    fail_errno("open", "/x");
  });
}

TEST(Printable, EscapesWhatTerminalsWouldInterpret) {
  EXPECT_EQ(printable("plain text"), "plain text");
  EXPECT_EQ(printable(std::string_view("a\0\x1B[2J\x7F", 7)),
            "a\\x00\\x1b[2J\\x7f");
  EXPECT_EQ(printable("\xFF"), "\\xff");
}

TEST(Printable, CutsLongText) {
  const std::string text = printable(std::string(1000, 'x'));
  EXPECT_EQ(text, std::string(120, 'x') + "...");
}

}  // namespace
}  // namespace nibble
