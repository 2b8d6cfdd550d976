#include "nibble/base/files/json.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "temporary_directory.h"

namespace nibble {
namespace {

void expect_refused(std::string_view text, std::string_view part) {
  SCOPED_TRACE(std::string(text.substr(0, 40)));
  expect_error(ErrorCode::kCorruptData, part, [&] {
    static_cast<void>(parse_json(text, "x.json"));
  });
}

TEST(ParseJson, GivesTheValue) {
  EXPECT_EQ(parse_json(R"({"a": [1, 2.5, "b", null]})", "x").dump(),
            R"({"a":[1,2.5,"b",null]})");
  EXPECT_EQ(parse_json(" 7 ", "x"), 7);
}

TEST(ParseJson, ErrorsNamePlaceLineAndColumn) {
  expect_refused("{\n  \"a\": 1,\n  \"b\": }\n", "x.json: line 3, column 8");
  expect_refused("", "x.json: line 1, column 1");
  expect_refused("{\"a\": 1} x", "line 1, column 10");
  expect_refused("{'a': 1}", "line 1, column 2");
}

TEST(ParseJson, RefusesBytesThatJsonCannotHold) {
  expect_refused("\xEF\xBB\xBF{}", "byte order mark");
  expect_refused(std::string_view("{}\0garbage", 10), "NUL");
  expect_refused("{\"a\": \"\xFF\"}", "no valid JSON");
  expect_refused(R"({"a": "\ud800"})", "no valid JSON");
  expect_refused(R"({"a": 1e999})", "cannot be represented");
}

TEST(ParseJson, RefusesDeepNesting) {
  const std::string deep(kMaxJsonDepth, '[');
  const std::string close(kMaxJsonDepth, ']');
  EXPECT_NO_THROW(static_cast<void>(parse_json(deep + close, "x")));
  expect_refused(deep + "[[" + close + "]]", "nested deeper than 64");
  // A million levels must neither overflow the stack nor take long.
  expect_refused(std::string(1'000'000, '['), "nested deeper than 64");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) {
    objects += R"({"a":)";
  }
  expect_refused(objects, "nested deeper than 64");
}

TEST(ReadJsonObject, RefusesOtherValuesAndLargeFiles) {
  const TemporaryDirectory directory;
  EXPECT_EQ(read_json_object(directory.add("a", R"({"k": 1})"))["k"], 1);
  expect_error(ErrorCode::kCorruptData, "found a JSON array", [&] {
    static_cast<void>(read_json_object(directory.add("b", "[]")));
  });
  expect_error(ErrorCode::kCorruptData, "expected at most 1", [&] {
    static_cast<void>(read_json_object(directory.add("c", "{}"), 1));
  });
  expect_error(ErrorCode::kNotFound, "none.json", [&] {
    static_cast<void>(read_json_object(directory.path() / "none.json"));
  });
}

}  // namespace
}  // namespace nibble
