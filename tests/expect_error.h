#pragma once

#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nibble/base/error.h"

namespace nibble {

// Runs step, which must throw an Error of this code whose message (or, after
// it, hint) contains part. Use SCOPED_TRACE to tell cases of a table apart.
template <typename Step>
void expect_error(ErrorCode code, std::string_view part, Step&& step) {
  try {
    step();
  } catch (const Error& error) {
    const std::string text = std::string(error.what()) + "\n" + error.hint();
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << text;
    EXPECT_THAT(text, testing::HasSubstr(std::string(part)));
    return;
  }
  ADD_FAILURE() << "found no error, expected one with: " << part;
}

}  // namespace nibble
