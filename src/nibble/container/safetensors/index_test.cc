#include "nibble/container/safetensors/index.h"

#include <string>
#include <string_view>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble::container {
namespace {

void expect_refused(std::string_view text, std::string_view part) {
  SCOPED_TRACE(std::string(text.substr(0, 100)));
  expect_error(ErrorCode::kCorruptData, part, [&] {
    static_cast<void>(parse_safetensors_index(text));
  });
}

TEST(ParseIndex, GivesFilesAndTotal) {
  const SafetensorsIndex index = parse_safetensors_index(
      R"({"metadata":{"total_size":12,"total_parameters":3,
          "nested":{"weight_map":[1]}},
          "weight_map":{"b":"2.safetensors","a":"1.safetensors"}})");
  EXPECT_EQ(index.total_bytes, 12u);
  ASSERT_EQ(index.weight_map.size(), 2u);
  EXPECT_EQ(index.weight_map.at("a"), "1.safetensors");
}

TEST(ParseIndex, TheTotalIsAdvisory) {
  EXPECT_FALSE(parse_safetensors_index(R"({"weight_map":{}})").total_bytes);
  EXPECT_FALSE(parse_safetensors_index(
                   R"({"metadata":{"total_size":1.5e9},"weight_map":{}})")
                   .total_bytes);
  EXPECT_FALSE(parse_safetensors_index(R"({"metadata":null,"weight_map":{}})")
                   .total_bytes);
}

TEST(ParseIndex, RefusesFileNamesThatLeaveTheDirectory) {
  for (const char* name : {"",
                           ".",
                           "..",
                           "../x.safetensors",
                           "/etc/passwd",
                           "a/b.safetensors",
                           R"(a\\b.safetensors)",
                           "C:x.safetensors",
                           R"(a\u0000.safetensors)"}) {
    expect_refused(fmt::format(R"({{"weight_map":{{"t":"{}"}}}})", name),
                   "tensor t: found file name");
  }
  expect_refused(
      fmt::format(R"({{"weight_map":{{"t":"{}"}}}})", std::string(300, 'x')),
      "expected a plain one");
}

TEST(ParseIndex, RefusesDuplicates) {
  expect_refused(R"({"weight_map":{"t":"a","t":"b"}})",
                 "tensor t: found twice");
  expect_refused(R"({"weight_map":{},"weight_map":{}})",
                 "found weight_map twice");
}

TEST(ParseIndex, RefusesWhatIsNoIndex) {
  expect_refused("", "not valid JSON");
  expect_refused("[]", "found a list, expected a JSON object");
  expect_refused("7", "found a number, expected a JSON object");
  expect_refused("{}", "found no weight_map");
  expect_refused(R"({"weight_map":[]})",
                 "weight_map: weight_map: found a list");
  expect_refused(R"({"weight_map":{"t":1}})", "t: found a number");
  expect_refused(R"({"weight_map":{"t":{}}})", "t: found an object");
  expect_refused(R"({"weight_map":{"t":["x"]}})", "t: found a list");
  expect_refused(R"({"weight_map":{"t":"a"}} x)", "not valid JSON");
  expect_refused(std::string_view("{}\0", 3), "found NUL");
  expect_refused(R"({"metadata":)" + std::string(100'000, '['),
                 "nested deeper");
}

TEST(SerializeIndex, IsSortedAndReadBack) {
  SafetensorsIndex index;
  index.total_bytes = 5'000'000'000'000;
  index.weight_map = {{"b", "model-00002-of-00002.safetensors"},
                      {"a", "model-00001-of-00002.safetensors"}};
  const std::string text = serialize_safetensors_index(index);
  EXPECT_EQ(text,
            "{\n"
            "  \"metadata\": {\n"
            "    \"total_size\": 5000000000000\n"
            "  },\n"
            "  \"weight_map\": {\n"
            "    \"a\": \"model-00001-of-00002.safetensors\",\n"
            "    \"b\": \"model-00002-of-00002.safetensors\"\n"
            "  }\n"
            "}\n");
  const SafetensorsIndex back = parse_safetensors_index(text);
  EXPECT_EQ(back.total_bytes, index.total_bytes);
  EXPECT_EQ(back.weight_map, index.weight_map);
}

TEST(FileName, NumbersFilesOnlyWhenThereAreSeveral) {
  EXPECT_EQ(safetensors_file_name(0, 1), "model.safetensors");
  EXPECT_EQ(safetensors_file_name(0, 2), "model-00001-of-00002.safetensors");
  EXPECT_EQ(safetensors_file_name(162, 163),
            "model-00163-of-00163.safetensors");
}

}  // namespace
}  // namespace nibble::container
