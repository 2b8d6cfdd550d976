#include "nibble/quant/pipeline/plan/config_edit.h"

#include <string>

#include <nlohmann/json.hpp>

#include "expect_error.h"

namespace nibble::quant {
namespace {

using nlohmann::json;

const json kValue{{"a", 1}, {"b", {1, 2}}};

TEST(WithEntry, AppendsInTheFilesOwnIndentation) {
  EXPECT_EQ(with_entry("{\n  \"x\": 1\n}\n", "q", {{"a", 1}}),
            "{\n  \"x\": 1,\n  \"q\": {\n    \"a\": 1\n  }\n}\n");
  EXPECT_EQ(with_entry("{\n\t\"x\": 1\n}", "q", {{"a", 1}}),
            "{\n\t\"x\": 1,\n\t\"q\": {\n\t\t\"a\": 1\n\t}\n}");
  EXPECT_EQ(with_entry("{\r\n    \"x\": []\r\n}", "q", 2),
            "{\r\n    \"x\": [],\r\n    \"q\": 2\r\n}");
}

TEST(WithEntry, KeepsACompactFileCompact) {
  EXPECT_EQ(with_entry(R"({"x":1})", "q", {{"a", 1}}),
            R"({"x":1,"q": {"a":1}})");
  EXPECT_EQ(with_entry(R"({ "x": 1 })", "q", 2), R"({ "x": 1, "q": 2 })");
  EXPECT_EQ(with_entry("{}", "q", 2), R"({"q": 2})");
  EXPECT_EQ(with_entry(" { } ", "q", 2), R"( {"q": 2 } )");
}

TEST(WithEntry, ReplacesTheTopLevelEntryAlone) {
  EXPECT_EQ(with_entry(R"({"t": {"q": 1}, "q": null, "z": "q"})", "q", 2),
            R"({"t": {"q": 1}, "q": 2, "z": "q"})");
  EXPECT_EQ(with_entry(R"({"q": {"deep": [1, {"q": "}"}]}})", "q", 2),
            R"({"q": 2})");
  EXPECT_EQ(with_entry(R"({"q": "a\"}", "z": 1})", "q", 2),
            R"({"q": 2, "z": 1})");
  EXPECT_EQ(with_entry(R"({"\u0071": 1})", "q", 2), R"({"\u0071": 2})");
}

// Numbers, order, nesting and unknown keys are what engines depend on.
TEST(WithEntry, LeavesEveryOtherByteAsItWas) {
  const std::string text =
      "{\n  \"rope_scaling\": {\"type\": \"su\", \"f\": [1e-05, 1.0, 8.]},\n"
      "  \"z\": 1E400,\n  \"a\": \"caf\xC3\xA9 \\u00e9\\\\\",\n"
      "  \"layer_types\": [\"x\", [\"y\"], {}]\n}\n";
  // A number that is no JSON is refused, not passed on.
  expect_error(ErrorCode::kCorruptData, "no JSON object", [&] {
    static_cast<void>(with_entry(text, "q", kValue));
  });
  std::string valid = text;
  valid.replace(valid.find("8.]"), 3, "8.0]");
  valid.replace(valid.find("1E400"), 5, "1E+30");
  const std::string edited = with_entry(valid, "q", kValue);
  const std::size_t end = valid.rfind("\n}");
  EXPECT_EQ(edited.substr(0, end), valid.substr(0, end));
  EXPECT_TRUE(edited.ends_with("\n}\n"));
  EXPECT_EQ(json::parse(edited).at("q"), kValue);
}

TEST(WithEntry, RefusesWhatIsNoObject) {
  for (const char* text : {"", "[]", "{", "{\"a\": }", "1", "{} {}"}) {
    SCOPED_TRACE(text);
    expect_error(ErrorCode::kCorruptData, "no JSON object", [&] {
      static_cast<void>(with_entry(text, "q", kValue));
    });
  }
}

TEST(ConfigEdit, RemovesAnEntryAndNothingElse) {
  EXPECT_EQ(without_entry(R"({"a": 1, "b": {"c": 2}, "d": 3})", "b"),
            R"({"a": 1, "d": 3})");
  EXPECT_EQ(without_entry(R"({"b": [1, 2], "d": 3})", "b"), R"({"d": 3})");
  EXPECT_EQ(without_entry("{\n  \"a\": 1,\n  \"b\": 2\n}\n", "b"),
            "{\n  \"a\": 1\n}\n");
  EXPECT_EQ(without_entry(R"({"b": 1})", "b"), "{}");
  EXPECT_EQ(without_entry(R"({"a": {"b": 1}})", "b"), R"({"a": {"b": 1}})");
}

}  // namespace
}  // namespace nibble::quant
