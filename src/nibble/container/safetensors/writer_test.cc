#include "nibble/container/safetensors/writer.h"

#include <array>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "nibble/container/safetensors/index.h"
#include "nibble/container/safetensors/reader.h"
#include "temporary_directory.h"

namespace nibble::container {
namespace {

namespace fs = std::filesystem;

TensorInfo info(std::string name, DType dtype, const Shape& shape) {
  const std::uint64_t bytes = tensor_bytes(dtype, shape).value();
  return {std::move(name), dtype, shape, bytes, "", 0};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(SetWriter, DataMayComeInAnyOrderAndInPieces) {
  const TemporaryDirectory directory;
  const std::vector<OutputFile> files{
      {"model-00001-of-00002.safetensors",
       {info("b", DType::kU8, {4}), info("a", DType::kU8, {2})}},
      {"model-00002-of-00002.safetensors", {info("c", DType::kU8, {3})}}};
  SafetensorsSetWriter writer(directory.path(), files);
  writer.write("c", 0, bytes_of("ccc"));
  writer.write("a", 1, bytes_of("2"));
  writer.write("b", 2, bytes_of("34"));
  writer.write("b", 0, bytes_of("12"));
  writer.write("a", 0, bytes_of("1"));
  writer.sync();
  write_safetensors_index(directory.path(), files);

  const auto reader = open_safetensors(directory.path());
  const auto text = [&](std::string_view name) {
    const Tensor tensor = reader->load(reader->get(name));
    return std::string(reinterpret_cast<const char*>(tensor.view().data()),
                       tensor.bytes());
  };
  EXPECT_EQ(text("a"), "12");
  EXPECT_EQ(text("b"), "1234");
  EXPECT_EQ(text("c"), "ccc");
  EXPECT_EQ(reader->metadata().at("format"), "pt");
  // The caller's order is the order in the file.
  EXPECT_EQ(reader->tensors()[0].name, "b");
  EXPECT_EQ(parse_safetensors_index(
                read_text_file(directory.path() / kSafetensorsIndexName))
                .total_bytes,
            9u);
}

TEST(SetWriter, FilesHaveTheirSizeAndZerosFromTheStart) {
  const TemporaryDirectory directory;
  const std::vector<OutputFile> files{
      {"model.safetensors", {info("a", DType::kF32, {100})}}};
  const SafetensorsSetWriter writer(directory.path(), files);
  const auto reader = open_safetensors(directory.path());
  const Tensor zeros = reader->load(reader->get("a"));
  for (const float value : zeros.view().as<float>()) {
    EXPECT_EQ(value, 0);
  }
}

TEST(SetWriter, ThreadsWriteTheirOwnTensors) {
  const TemporaryDirectory directory;
  OutputFile file{"model.safetensors", {}};
  for (char name = 'a'; name < 'i'; ++name) {
    file.tensors.push_back(info(std::string(1, name), DType::kU8, {5000}));
  }
  SafetensorsSetWriter writer(directory.path(), std::span(&file, 1));
  std::vector<std::thread> threads;
  for (const TensorInfo& tensor : file.tensors) {
    threads.emplace_back([&writer, &tensor] {
      const std::string part(1000, tensor.name[0]);
      for (std::uint64_t offset = 0; offset < 5000; offset += 1000) {
        writer.write(tensor.name, offset, bytes_of(part));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const auto reader = open_safetensors(directory.path());
  for (const TensorInfo& tensor : reader->tensors()) {
    const Tensor loaded = reader->load(tensor);
    for (const std::uint8_t byte : loaded.view().as<std::uint8_t>()) {
      ASSERT_EQ(byte, tensor.name[0]);
    }
  }
}

TEST(SetWriter, RefusesWritesThatWereNotAnnounced) {
  const TemporaryDirectory directory;
  const std::vector<OutputFile> files{
      {"x", {info("a", DType::kU8, {4}), info("b", DType::kU8, {4})}}};
  SafetensorsSetWriter writer(directory.path(), files);
  expect_error(ErrorCode::kInternal, "tensor aa: found none", [&] {
    writer.write("aa", 0, bytes_of("x"));
  });
  expect_error(ErrorCode::kInternal, "found 3 bytes from byte 2", [&] {
    writer.write("a", 2, bytes_of("xyz"));
  });
  expect_error(ErrorCode::kInternal, "expected at most 4", [&] {
    writer.write("a", ~std::uint64_t{0}, bytes_of("x"));
  });
  EXPECT_NO_THROW(writer.write("a", 4, {}));
}

TEST(SetWriter, RefusesSetsThatCannotBe) {
  const TemporaryDirectory directory;
  const auto refused = [&](const std::vector<OutputFile>& files,
                           ErrorCode code,
                           std::string_view part) {
    expect_error(code, part, [&] {
      static_cast<void>(SafetensorsSetWriter(directory.path(), files));
    });
  };
  const TensorInfo tensor = info("a", DType::kU8, {4});
  refused({{"x", {tensor}}, {"y", {tensor}}},
          ErrorCode::kInvalidArgument,
          "tensor a: found twice in one set of files");
  refused({{"x", {tensor}}, {"x", {}}},
          ErrorCode::kInvalidArgument,
          "file x: found twice");
  refused({{"x", {tensor, tensor}}},
          ErrorCode::kInvalidArgument,
          "x: tensor a: found twice in one file");
  refused({{"no/such/x", {tensor}}}, ErrorCode::kIo, "no/such/x");
  refused({{"x", {info("a", DType::kU8, {std::int64_t{1} << 59})}}},
          ErrorCode::kIo,
          "x: ");
}

// A run that goes on keeps what an earlier one wrote.
TEST(SafetensorsSetWriter, ContinuesFilesThatExist) {
  const TemporaryDirectory directory;
  OutputFile file{"a.safetensors", {}};
  for (const char* name : {"x", "y"}) {
    file.tensors.push_back({name, DType::kU8, {2}, 2, "", 0});
  }
  const std::array<std::byte, 2> ones{std::byte{1}, std::byte{1}};
  SafetensorsSetWriter(directory.path(), {&file, 1}).write("x", 0, ones);
  SafetensorsSetWriter(directory.path(), {&file, 1}, ExistingFiles::kContinue)
      .write("y", 0, ones);
  const auto reader = open_safetensors(directory.path() / file.name);
  for (const char* name : {"x", "y"}) {
    const Tensor tensor = reader->load(reader->get(name));
    EXPECT_EQ(tensor.view().as<std::uint8_t>()[0], 1) << name;
  }
  SafetensorsSetWriter(directory.path(), {&file, 1}).write("y", 0, ones);
  EXPECT_EQ(open_safetensors(directory.path() / file.name)
                ->load_copy(reader->get("x"))
                .view()
                .as<std::uint8_t>()[0],
            0);
}

TEST(WriteSafetensors, EqualsTheReferenceWritersFile) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "x.safetensors";
  const Tensor wide = Tensor::from_floats({1}, {1.0F});
  Tensor narrow = Tensor::zeros(DType::kU8, {3});
  narrow.view().as<std::uint8_t>()[0] = 7;
  const std::vector<NamedTensor> tensors{{"a", std::as_const(narrow).view()},
                                         {"b", wide.view()}};
  write_safetensors(path, tensors);
  const std::string json =
      R"({"__metadata__":{"format":"pt"},)"
      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("a":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";
  std::string expected(8, '\0');
  const std::size_t padded = (json.size() + 7) / 8 * 8;
  expected[0] = static_cast<char>(padded);
  expected += json + std::string(padded - json.size(), ' ');
  expected += std::string("\x00\x00\x80\x3F\x07\x00\x00", 7);
  EXPECT_EQ(read_text_file(path), expected);
}

TEST(WriteSafetensors, ReplacesAFileAndLeavesNothingElse) {
  const TemporaryDirectory directory;
  const fs::path path = directory.add("x.safetensors", "old");
  const Tensor value = Tensor::from_floats({1}, {1.0F});
  const std::vector<NamedTensor> tensors{{"b", value.view()}};
  write_safetensors(path, tensors);
  EXPECT_EQ(open_safetensors(path)->tensors().size(), 1u);
  EXPECT_FALSE(fs::exists(directory.path() / "x.safetensors.tmp"));

  const std::vector<NamedTensor> twice{{"b", value.view()},
                                       {"b", value.view()}};
  EXPECT_THROW(write_safetensors(path, twice), Error);
  EXPECT_EQ(open_safetensors(path)->tensors().size(), 1u);
  EXPECT_FALSE(fs::exists(directory.path() / "x.safetensors.tmp"));
}

// Bundled models, rewritten tensor by tensor, come out as they went in.
TEST(WriteSafetensors, RestoresARealFileByteForByte) {
  const fs::path source = fs::path(NIBBLE_SOURCE_DIR) / "models" /
                          "fable-dense" / "model.safetensors";
  const TemporaryDirectory directory;
  const auto reader = open_safetensors(source);
  std::vector<Tensor> loaded;
  std::vector<NamedTensor> tensors;
  for (const TensorInfo& tensor : reader->tensors()) {
    loaded.push_back(reader->load(tensor));
    tensors.push_back({tensor.name, std::as_const(loaded.back()).view()});
  }
  write_safetensors(directory.path() / "x.safetensors", tensors);
  EXPECT_TRUE(read_text_file(directory.path() / "x.safetensors") ==
              read_text_file(source));
}

}  // namespace
}  // namespace nibble::container
