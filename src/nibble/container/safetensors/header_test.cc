#include "nibble/container/safetensors/header.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "expect_error.h"
#include "nibble/base/files/file.h"

namespace nibble::container {
namespace {

// Parses a header that is followed by data_bytes of data.
SafetensorsHeader parse(std::string_view json, std::uint64_t data_bytes) {
  return parse_safetensors_header(json, 8 + json.size() + data_bytes);
}

void expect_refused(std::string_view json,
                    std::uint64_t data_bytes,
                    std::string_view part,
                    ErrorCode code = ErrorCode::kCorruptData) {
  SCOPED_TRACE(std::string(json.substr(0, 200)));
  expect_error(code, part, [&] { static_cast<void>(parse(json, data_bytes)); });
}

// A header with one F32 tensor "x" whose shape and offsets are this text.
std::string one(std::string_view shape, std::string_view offsets) {
  return fmt::format(
      R"({{"x":{{"dtype":"F32","shape":{},"data_offsets":{}}}}})",
      shape,
      offsets);
}

std::string entry(std::string_view name,
                  std::string_view dtype,
                  std::string_view shape,
                  std::uint64_t begin,
                  std::uint64_t end) {
  return fmt::format(
      R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
      name,
      dtype,
      shape,
      begin,
      end);
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// ---- What is read ----------------------------------------------------------

TEST(ParseHeader, GivesTensorsInOrderOfTheirData) {
  const std::string json = "{" + entry("b", "BF16", "[2,3]", 4, 16) +
                           R"(,"__metadata__":{"k":"v"},)" +
                           entry("a", "F32", "[]", 0, 4) + "}";
  const SafetensorsHeader header = parse(json, 12 + 4);
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].shape.rank(), 0u);
  EXPECT_EQ(header.tensors[0].bytes, 4u);
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_EQ(header.tensors[1].dtype, DType::kBF16);
  EXPECT_TRUE(header.tensors[1].shape == (Shape{2, 3}));
  EXPECT_EQ(header.tensors[1].bytes, 12u);
  EXPECT_EQ(header.offsets[0], 8 + json.size());
  EXPECT_EQ(header.offsets[1], 8 + json.size() + 4);
  EXPECT_EQ(header.metadata, (TextMetadata{{"k", "v"}}));
}

TEST(ParseHeader, AnEmptyObjectIsAFileWithoutTensors) {
  EXPECT_TRUE(parse("{}", 0).tensors.empty());
  EXPECT_TRUE(parse(R"({"__metadata__":{}})", 0).tensors.empty());
}

TEST(ParseHeader, WhitespaceMaySurroundTheObject) {
  EXPECT_EQ(
      parse(" \t\r\n" + one("[1]", "[0,4]") + "  \n\t ", 4).tensors.size(), 1u);
}

TEST(ParseHeader, TensorsWithoutElementsOwnNoBytes) {
  const std::string json = "{" + entry("z", "F32", "[0]", 4, 4) + "," +
                           entry("x", "F32", "[1]", 0, 4) + "," +
                           entry("y", "I64", "[3,0,2]", 0, 0) + "}";
  const SafetensorsHeader header = parse(json, 4);
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].name, "y");
  EXPECT_EQ(header.tensors[0].bytes, 0u);
  EXPECT_EQ(header.tensors[2].name, "z");
}

TEST(ParseHeader, KnowsEveryDType) {
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto bytes = static_cast<std::uint64_t>(dtype_bits(dtype));
    const std::string json =
        fmt::format("{{{}}}", entry("x", dtype_name(dtype), "[2,4]", 0, bytes));
    EXPECT_EQ(parse(json, bytes).tensors[0].dtype, dtype);
  }
}

TEST(ParseHeader, NamesMayHoldAnythingThatIsText) {
  const std::string json =
      "{" + entry(R"(../a\u0000\u00e9\n)", "U8", "[1]", 0, 1) + "}";
  EXPECT_EQ(parse(json, 1).tensors[0].name, std::string("../a\0\xC3\xA9\n", 8));
}

// ---- Length of the header --------------------------------------------------

void expect_length_refused(std::string_view first,
                           std::uint64_t file_bytes,
                           std::string_view part) {
  SCOPED_TRACE(std::string(part));
  expect_error(ErrorCode::kCorruptData, part, [&] {
    static_cast<void>(safetensors_header_bytes(bytes_of(first), file_bytes));
  });
}

TEST(HeaderLength, IsLittleEndian) {
  const std::string_view first("\x02\x01\x00\x00\x00\x00\x00\x00", 8);
  EXPECT_EQ(safetensors_header_bytes(bytes_of(first), 8 + 0x102), 0x102u);
}

TEST(HeaderLength, RefusesShortFiles) {
  for (std::size_t bytes = 0; bytes < 8; ++bytes) {
    expect_length_refused(
        std::string(bytes, '\0'),
        bytes,
        fmt::format("found {} bytes, expected at least 8", bytes));
  }
}

TEST(HeaderLength, RefusesLengthsBeyondTheLimitOrTheFile) {
  expect_length_refused(std::string(8, '\xFF'),
                        std::uint64_t{1} << 40,
                        "found a header length of 18446744073709551615");
  // 100,000,001
  expect_length_refused(
      std::string_view("\x01\xE1\xF5\x05\x00\x00\x00\x00", 8),
      std::uint64_t{1} << 40,
      "found a header length of 100000001, expected at most 100000000");
  expect_length_refused(std::string_view("\x09\x00\x00\x00\x00\x00\x00\x00", 8),
                        16,
                        "found a header length of 9 in a file of 16 bytes");
}

TEST(HeaderLength, ExplainsGitLfsPointers) {
  const std::string_view pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n";
  expect_length_refused(pointer, pointer.size(), "git lfs pull");
}

// ---- Text that is no header ------------------------------------------------

TEST(ParseHeader, RefusesWhatIsNotOneJsonObject) {
  expect_refused("", 0, "not valid JSON");
  expect_refused("   ", 0, "not valid JSON");
  expect_refused("{", 0, "not valid JSON");
  expect_refused(R"({"x":{"dtype":"F32","shape":[1])", 0, "not valid JSON");
  expect_refused("{}x", 0, "not valid JSON");
  expect_refused("{}{}", 0, "not valid JSON");
  expect_refused("{,}", 0, "not valid JSON");
  expect_refused(one("[1]", "[0,4]") + ",", 4, "not valid JSON");
  expect_refused("[]", 0, "header: found a list, expected a JSON object");
  expect_refused("5", 0, "header: found 5, expected a JSON object");
  expect_refused("\"x\"", 0, "found text 'x', expected a JSON object");
  expect_refused("null", 0, "header: found null");
  expect_refused("true", 0, "header: found a boolean");
}

TEST(ParseHeader, RefusesBytesThatHideSomething) {
  expect_refused("\xEF\xBB\xBF{}", 0, "byte order mark");
  expect_refused(std::string_view("{}\0\0", 4), 0, "byte 2: found NUL");
  expect_refused("{\"\xFF\":{}}", 0, "not valid JSON");
  expect_refused("{\"\xC0\x80\":{}}", 0, "not valid JSON");
  expect_refused(R"({"\ud800":{}})", 0, "not valid JSON");
  expect_refused(R"({"\udc00x":{}})", 0, "not valid JSON");
}

TEST(ParseHeader, RefusesDeepNestingAtOnce) {
  const std::string deep(1'000'000, '[');
  expect_refused(deep, 0, "found a list");
  expect_refused(R"({"x":)" + deep, 0, "found a list, expected an object");
  expect_refused(
      R"({"x":{"shape":)" + deep, 0, "found a list, expected a shape");
  expect_refused(R"({"__metadata__":{"k":)" + deep, 0, "found a list");
  std::string objects;
  for (int i = 0; i < 1000; ++i) {
    objects += R"({"x":)";
  }
  expect_refused(objects, 0, "tensor x: found key x");
}

TEST(ParseHeader, RefusesValuesOfTheWrongKind) {
  expect_refused(R"({"x":5})", 0, "found 5, expected an object");
  expect_refused(R"({"x":[]})", 0, "found a list, expected an object");
  expect_refused(one("5", "[0,4]"), 4, "tensor x: found 5, expected a list");
  expect_refused(one("\"a\"", "[0,4]"), 4, "found text 'a'");
  expect_refused(one("{}", "[0,4]"), 4, "found an object");
  expect_refused(one("[[1]]", "[0,4]"), 4, "found a list");
  expect_refused(one("[\"1\"]", "[0,4]"), 4, "found text '1'");
  expect_refused(one("[null]", "[0,4]"), 4, "found null");
  expect_refused(R"({"x":{"dtype":1}})", 0, "expected the name of a dtype");
  expect_refused(R"({"x":{"dtype":[]}})", 0, "expected the name of a dtype");
}

TEST(ParseHeader, RefusesMissingRepeatedAndUnknownKeys) {
  expect_refused(R"({"x":{}})", 0, "tensor x: found no dtype");
  expect_refused(R"({"x":{"dtype":"U8"}})", 0, "found no shape");
  expect_refused(
      R"({"x":{"dtype":"U8","shape":[0]}})", 0, "found no data_offsets");
  expect_refused(
      R"({"x":{"dtype":"U8","dtype":"U8"}})", 0, "found dtype twice");
  expect_refused(R"({"x":{"stride":[1]}})", 0, "found key stride");
}

TEST(ParseHeader, RefusesAnUnknownDTypeByName) {
  expect_refused(R"({"x":{"dtype":"Q4_K"}})",
                 0,
                 "tensor x: found dtype Q4_K",
                 ErrorCode::kUnsupported);
}

TEST(ParseHeader, RefusesNumbersThatAreNotPlainIntegers) {
  for (const char* number :
       {"-1", "-0", "1.0", "1e3", "1E3", "0.5", "18446744073709551616"}) {
    expect_refused(one(fmt::format("[{}]", number), "[0,4]"), 4, number);
    expect_refused(one("[1]", fmt::format("[0,{}]", number)), 4, number);
  }
  expect_refused(one("[01]", "[0,4]"), 4, "not valid JSON");
  expect_refused(one("[+1]", "[0,4]"), 4, "not valid JSON");
  expect_refused(one("[0x1]", "[0,4]"), 4, "not valid JSON");
  expect_refused(
      one("[9223372036854775808]", "[0,4]"), 4, "expected less than 2^63");
}

TEST(ParseHeader, RefusesTooManyDimensions) {
  std::string dims = "1";
  for (int i = 0; i < 40; ++i) {
    dims += ",1";
  }
  expect_refused(one("[" + dims + "]", "[0,4]"), 4, "more than 32 dimensions");
  expect_refused(one("[1,1,1,1,1,1,1,1,1]", "[0,4]"),
                 4,
                 "tensor x: tensor: found 9 dimensions",
                 ErrorCode::kUnsupported);
}

TEST(ParseHeader, RefusesMoreTensorsThanAllowed) {
  std::string json = "{";
  for (int i = 0; i < 11; ++i) {
    json += entry(fmt::format("t{}", i), "U8", "[0]", 0, 0) + ",";
  }
  json.back() = '}';
  EXPECT_EQ(parse_safetensors_header(json, 8 + json.size(), 11).tensors.size(),
            11u);
  expect_error(ErrorCode::kCorruptData, "more than 10 tensors", [&] {
    static_cast<void>(parse_safetensors_header(json, 8 + json.size(), 10));
  });
}

TEST(ParseHeader, RefusesDuplicatesByName) {
  expect_refused("{" + entry("a", "U8", "[1]", 0, 1) + "," +
                     entry("a", "U8", "[1]", 1, 2) + "}",
                 2,
                 "header: found tensor a twice");
  // Equal only after the escapes are resolved.
  expect_refused("{" + entry("a", "U8", "[0]", 0, 0) + "," +
                     entry(R"(\u0061)", "U8", "[0]", 0, 0) + "}",
                 0,
                 "found tensor a twice");
  expect_refused(R"({"__metadata__":{},"__metadata__":{}})",
                 0,
                 "found __metadata__ twice");
  expect_refused(R"({"__metadata__":{"k":"a","k":"b"}})",
                 0,
                 "__metadata__: found key k twice");
}

TEST(ParseHeader, RefusesMetadataThatIsNotText) {
  for (const char* value : {"1", "null", "true", "[]", "{}", "-1", "1.5"}) {
    expect_refused(fmt::format(R"({{"__metadata__":{{"k":{}}}}})", value),
                   0,
                   "__metadata__: found");
  }
  expect_refused(R"({"__metadata__":"pt"})", 0, "expected an object");
}

// ---- Sizes and places that lie ---------------------------------------------

TEST(ParseHeader, RefusesShapesWhoseSizeOverflows) {
  for (const char* shape : {"[2,18446744073709551614]",
                            "[2,9223372036854775807]",
                            "[4294967296,4294967296]",
                            "[4611686018427387904,4,0]",
                            "[2305843009213693952]",
                            "[9223372036854775807]"}) {
    SCOPED_TRACE(shape);
    expect_error(ErrorCode::kCorruptData, "2^63", [&] {
      static_cast<void>(parse(one(shape, "[0,4]"), 4));
    });
  }
}

TEST(ParseHeader, RefusesOffsetsThatAreNotARange) {
  expect_refused(one("[1]", "[0]"), 4, "found 1 data_offsets, expected 2");
  expect_refused(one("[1]", "[]"), 4, "found 0 data_offsets");
  expect_refused(one("[1]", "[0,4,4]"), 4, "expected two offsets");
  const std::string reversed = "{" + entry("a", "U8", "[4]", 0, 4) + "," +
                               entry("b", "U8", "[0]", 4, 3) + "}";
  expect_refused(reversed, 4, "tensor b: found data_offsets 4 to 3");
}

TEST(ParseHeader, RefusesOffsetsBeyondTheFile) {
  expect_refused(one("[2]", "[0,8]"),
                 4,
                 "found 4 bytes of data, expected 8 from the header: the file "
                 "is cut short");
  expect_refused(
      one("[1]", "[18446744073709551612,18446744073709551615]"), 4, "hole");
}

TEST(ParseHeader, RefusesOverlapsAndHoles) {
  expect_refused("{" + entry("a", "U8", "[4]", 0, 4) + "," +
                     entry("b", "U8", "[4]", 0, 4) + "}",
                 4,
                 "tensor b: found data from byte 0, which overlaps");
  expect_refused("{" + entry("a", "U8", "[4]", 0, 4) + "," +
                     entry("b", "U8", "[4]", 3, 7) + "}",
                 7,
                 "overlaps");
  expect_refused("{" + entry("a", "U8", "[4]", 0, 4) + "," +
                     entry("b", "U8", "[4]", 5, 9) + "}",
                 9,
                 "tensor b: found data from byte 5, expected 4: there is a "
                 "hole");
  expect_refused(one("[1]", "[4,8]"), 8, "hole");
}

TEST(ParseHeader, RefusesSizesThatDisagreeWithTheShape) {
  expect_refused(one("[2]", "[0,4]"), 4, "found 4 bytes, expected 8");
  expect_refused(one("[1]", "[0,8]"), 8, "found 8 bytes, expected 4");
  expect_refused(one("[]", "[0,0]"), 0, "found 0 bytes, expected 4");
}

TEST(ParseHeader, RefusesBytesAfterTheLastTensor) {
  expect_refused(one("[1]", "[0,4]"), 5, "the file is too long");
  expect_refused("{}", 1, "the file is too long");
}

TEST(ParseHeader, RefusesSubByteTensorsThatEndWithinAByte) {
  expect_refused(
      "{" + entry("x", "F4", "[3]", 0, 2) + "}", 2, "whole number of bytes");
  expect_refused("{" + entry("x", "F6_E2M3", "[3]", 0, 3) + "}",
                 3,
                 "whole number of bytes");
  EXPECT_EQ(
      parse("{" + entry("x", "F6_E3M2", "[4]", 0, 3) + "}", 3).tensors[0].bytes,
      3u);
}

TEST(ParseHeader, EveryPrefixOfAHeaderIsRefused) {
  const std::string json = "{" + entry("a", "F32", "[2,3]", 0, 24) +
                           R"(,"__metadata__":{"format":"pt"}})";
  EXPECT_NO_THROW(static_cast<void>(parse(json, 24)));
  for (std::size_t bytes = 0; bytes < json.size(); ++bytes) {
    EXPECT_THROW(
        static_cast<void>(parse(std::string_view(json).substr(0, bytes), 24)),
        Error)
        << bytes;
  }
}

TEST(ParseHeader, ErrorsEscapeNamesForTheTerminal) {
  expect_refused("{" + entry(R"(\u001b[2J)", "U8", "[2]", 0, 1) + "}",
                 1,
                 "tensor \\x1b[2J: found 1 bytes");
}

// ---- Writing ---------------------------------------------------------------

TensorInfo info(std::string name, DType dtype, const Shape& shape) {
  const std::uint64_t bytes = tensor_bytes(dtype, shape).value_or(0);
  return {std::move(name), dtype, shape, bytes, "", 0};
}

// Two headers published as bytes of the reference writer.
TEST(SerializeHeader, EqualsTheReferenceWriter) {
  const std::vector<TensorInfo> wide{info("attn.0", DType::kF32, {1, 2, 3})};
  const std::string first = serialize_safetensors_header(wide, {});
  EXPECT_EQ(first,
            std::string("\x40\0\0\0\0\0\0\0", 8) +
                R"({"attn.0":{"dtype":"F32","shape":[1,2,3],)"
                R"("data_offsets":[0,24]}})");
  EXPECT_EQ(first.size(), 72u);
  const std::vector<TensorInfo> narrow{info("attn.0", DType::kF4, {1, 2})};
  const std::string second = serialize_safetensors_header(narrow, {});
  EXPECT_EQ(second,
            std::string("\x40\0\0\0\0\0\0\0", 8) +
                R"({"attn.0":{"dtype":"F4","shape":[1,2],)"
                R"("data_offsets":[0,1]}}    )");
}

// The bundled models were written by the reference writer.
TEST(SerializeHeader, RestoresTheHeadersOfRealFiles) {
  for (const char* model : {"fable-dense", "fable-moe"}) {
    const File file = File::open_read(std::filesystem::path(NIBBLE_SOURCE_DIR) /
                                      "models" / model / "model.safetensors");
    std::string prefix(8, '\0');
    file.read(0, std::as_writable_bytes(std::span(prefix)));
    const std::uint64_t length =
        safetensors_header_bytes(bytes_of(prefix), file.size_bytes());
    prefix.resize(8 + length);
    file.read(0, std::as_writable_bytes(std::span(prefix)));
    SafetensorsHeader header = parse_safetensors_header(
        std::string_view(prefix).substr(8), file.size_bytes());
    ASSERT_GT(header.tensors.size(), 30u);
    std::reverse(header.tensors.begin(), header.tensors.end());
    sort_like_reference(header.tensors);
    EXPECT_EQ(serialize_safetensors_header(header.tensors, header.metadata),
              prefix);
  }
}

TEST(SerializeHeader, IsReadBackAsItWas) {
  const std::vector<TensorInfo> tensors{
      info(std::string("a\"\\\0\x1F\xC3\xA9", 7), DType::kI8, {0, 7}),
      info("b", DType::kF64, {}),
      info("c", DType::kF6E2M3, {2, 4})};
  const TextMetadata metadata{{"format", "pt"}, {"x\n", "\"y\""}};
  const std::string bytes = serialize_safetensors_header(tensors, metadata);
  EXPECT_EQ(bytes.size() % 8, 0u);
  const SafetensorsHeader header = parse_safetensors_header(
      std::string_view(bytes).substr(8), bytes.size() + 8 + 6);
  EXPECT_EQ(header.metadata, metadata);
  ASSERT_EQ(header.tensors.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(header.tensors[i].name, tensors[i].name);
    EXPECT_EQ(header.tensors[i].dtype, tensors[i].dtype);
    EXPECT_TRUE(header.tensors[i].shape == tensors[i].shape);
  }
}

TEST(SerializeHeader, RefusesWhatNoReaderWouldTake) {
  const auto refused = [](std::vector<TensorInfo> tensors,
                          std::string_view part) {
    expect_error(ErrorCode::kInvalidArgument, part, [&] {
      static_cast<void>(serialize_safetensors_header(tensors, {}));
    });
  };
  const TensorInfo good = info("a", DType::kF32, {2});
  refused({good, good}, "tensor a: found twice");
  refused({info("__metadata__", DType::kF32, {2})}, "cannot hold");
  refused({info("\xFF", DType::kF32, {2})}, "not UTF-8");
  refused({info("a", DType::kF4, {3})}, "cannot hold");
  TensorInfo wrong = good;
  wrong.bytes = 7;
  refused({wrong}, "in 7 bytes, which safetensors cannot hold");
  TensorInfo encoded = good;
  encoded.encoding = "Q4_K";
  refused({encoded}, "encoded as Q4_K");
  refused({info(std::string(100'000'000, 'x'), DType::kU8, {0})},
          "expected at most 100000000");
}

TEST(SortLikeReference, PutsWideTypesFirstThenNames) {
  std::vector<TensorInfo> tensors{info("a", DType::kBF16, {1}),
                                  info("b", DType::kU8, {1}),
                                  info("d", DType::kI64, {1}),
                                  info("c", DType::kF32, {1}),
                                  info("B", DType::kBF16, {1})};
  sort_like_reference(tensors);
  std::string order;
  for (const TensorInfo& tensor : tensors) {
    order += tensor.name;
  }
  EXPECT_EQ(order, "dcBab");
}

TEST(TensorBytes, KnowsPartialAndImpossibleSizes) {
  EXPECT_EQ(tensor_bytes(DType::kBF16, {3, 5}), 30u);
  EXPECT_EQ(tensor_bytes(DType::kF4, {2}), 1u);
  EXPECT_FALSE(tensor_bytes(DType::kF4, {3}));
  EXPECT_FALSE(tensor_bytes(DType::kU8, {-1}));
  EXPECT_FALSE(tensor_bytes(DType::kF64, {std::int64_t{1} << 62}));
}

}  // namespace
}  // namespace nibble::container
