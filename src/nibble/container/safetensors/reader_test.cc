#include "nibble/container/safetensors/reader.h"

#include <atomic>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/log.h"
#include "nibble/container/safetensors/writer.h"
#include "temporary_directory.h"

namespace nibble::container {
namespace {

namespace fs = std::filesystem;

// Writes a file of float tensors, each filled with first, first + 1 ...
void write_floats(const fs::path& path,
                  const std::vector<std::pair<std::string, float>>& tensors) {
  std::vector<Tensor> values;
  std::vector<NamedTensor> named;
  for (const auto& [name, first] : tensors) {
    values.push_back(
        Tensor::from_floats({2, 2}, {first, first + 1, first + 2, first + 3}));
    named.push_back({name, std::as_const(values.back()).view()});
  }
  write_safetensors(path, named);
}

float value_at(const Tensor& tensor, std::size_t i) {
  return tensor.view().as<float>()[i];
}

// A checkpoint of two shards with an index: a and b, c.
class Sharded : public testing::Test {
 protected:
  void SetUp() override {
    write_floats(path() / kFirst, {{"a", 0}, {"b", 10}});
    write_floats(path() / kSecond, {{"c", 20}});
    write_index(R"({"a":"first.safetensors","b":"first.safetensors",
                    "c":"second.safetensors"})");
  }

  const fs::path& path() const { return directory_.path(); }

  void write_index(const std::string& weight_map, int total_bytes = 48) {
    directory_.add(
        "model.safetensors.index.json",
        "{\"metadata\":{\"total_size\":" + std::to_string(total_bytes) +
            "},\"weight_map\":" + weight_map + "}");
  }

  void expect_refused(ErrorCode code, std::string_view part) {
    expect_error(
        code, part, [&] { static_cast<void>(open_safetensors(path())); });
  }

  static constexpr const char* kFirst = "first.safetensors";
  static constexpr const char* kSecond = "second.safetensors";
  TemporaryDirectory directory_;
};

TEST_F(Sharded, TensorsOfAllFilesAreOneSet) {
  const auto reader = open_safetensors(path());
  ASSERT_EQ(reader->tensors().size(), 3u);
  EXPECT_EQ(reader->files().size(), 2u);
  EXPECT_EQ(reader->get("c").file, 1u);
  EXPECT_EQ(value_at(reader->load(reader->get("b")), 3), 13);
  EXPECT_EQ(value_at(reader->load_copy(reader->get("c")), 0), 20);
  EXPECT_EQ(reader->metadata().at("format"), "pt");
}

TEST_F(Sharded, OtherWeightFilesAreIgnored) {
  directory_.add("consolidated.safetensors", "not even a header");
  directory_.add("model.safetensors", "nor this");
  EXPECT_EQ(open_safetensors(path())->tensors().size(), 3u);
}

TEST_F(Sharded, AMissingShardIsNamed) {
  fs::remove(path() / kSecond);
  expect_refused(ErrorCode::kNotFound,
                 "found no file second.safetensors, expected all 2");
}

TEST_F(Sharded, ATensorInTwoShardsIsRefused) {
  write_floats(path() / kSecond, {{"c", 20}, {"a", 0}});
  expect_refused(ErrorCode::kCorruptData, "tensor a: found in ");
}

TEST_F(Sharded, ATensorThatTheIndexDoesNotKnowIsRefused) {
  write_floats(path() / kSecond, {{"c", 20}, {"hidden", 0}});
  expect_refused(
      ErrorCode::kCorruptData,
      "tensor hidden: found in second.safetensors but not in the index");
}

TEST_F(Sharded, ATensorThatNoShardHasIsRefused) {
  write_index(R"({"a":"first.safetensors","b":"first.safetensors",
                  "c":"second.safetensors","d":"second.safetensors"})");
  expect_refused(ErrorCode::kCorruptData,
                 "tensor d: found in the index but not in second.safetensors");
}

TEST_F(Sharded, ATensorInAnotherShardThanNamedIsRefused) {
  write_index(R"({"a":"first.safetensors","b":"second.safetensors",
                  "c":"second.safetensors"})");
  expect_refused(ErrorCode::kCorruptData,
                 "tensor b: found in first.safetensors, expected in "
                 "second.safetensors");
}

TEST_F(Sharded, ABadIndexIsNamed) {
  directory_.add("model.safetensors.index.json", "{");
  expect_refused(ErrorCode::kCorruptData, "model.safetensors.index.json: byte");
}

TEST_F(Sharded, AWrongTotalIsOnlyAWarning) {
  write_index(R"({"a":"first.safetensors","b":"first.safetensors",
                  "c":"second.safetensors"})",
              47);
  std::string warning;
  set_log_sink([&](LogLevel, std::string_view text) { warning = text; });
  EXPECT_NO_THROW(static_cast<void>(open_safetensors(path())));
  set_log_sink(nullptr);
  EXPECT_NE(warning.find("found total_size 47, expected 48"),
            std::string::npos);
}

TEST_F(Sharded, ACutShardIsNamed) {
  fs::resize_file(path() / kFirst, fs::file_size(path() / kFirst) - 1);
  expect_refused(ErrorCode::kCorruptData, "first.safetensors: found 31 bytes");
}

// Hub caches keep files elsewhere and link to them.
TEST_F(Sharded, LinksAreFollowed) {
  const TemporaryDirectory links;
  for (const char* name : {kFirst, kSecond, "model.safetensors.index.json"}) {
    fs::create_symlink(path() / name, links.path() / name);
  }
  EXPECT_EQ(open_safetensors(links.path())->tensors().size(), 3u);
}

TEST_F(Sharded, ThreadsReadSlicesAtOnce) {
  const auto reader = open_safetensors(path());
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        for (const TensorInfo& tensor : reader->tensors()) {
          float value = 0;
          reader->read(tensor, 8, std::as_writable_bytes(std::span(&value, 1)));
          const float first = static_cast<float>(tensor.name[0] - 'a') * 10;
          wrong += value == first + 2 ? 0 : 1;
          wrong += value_at(*reader->map(tensor), 2) == value ? 0 : 1;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
}

// ---- One file --------------------------------------------------------------

TEST(OpenSafetensors, TakesAFileOrItsDirectory) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "model.safetensors";
  write_floats(path, {{"x", 1}});
  EXPECT_EQ(open_safetensors(path)->tensors().size(), 1u);
  EXPECT_EQ(open_safetensors(directory.path())->files()[0], path);
}

TEST(OpenSafetensors, ExplainsWhyThereIsNothing) {
  const TemporaryDirectory directory;
  const auto refused = [&](ErrorCode code, std::string_view part) {
    expect_error(code, part, [&] {
      static_cast<void>(open_safetensors(directory.path()));
    });
  };
  refused(ErrorCode::kNotFound, "found no weights");
  directory.add("pytorch_model.bin", "");
  refused(ErrorCode::kUnsupported, "convert the checkpoint");
  directory.add("model-00001-of-00002.safetensors", "");
  refused(ErrorCode::kNotFound, "download the index of the shards");
  expect_error(ErrorCode::kNotFound, "found no such file", [] {
    static_cast<void>(open_safetensors("/no/such/model"));
  });
}

TEST(OpenSafetensors, NamesTheFileOfEveryFault) {
  const TemporaryDirectory directory;
  const auto refused = [&](std::string_view content, std::string_view part) {
    const fs::path path = directory.add("model.safetensors", content);
    expect_error(ErrorCode::kCorruptData, path.string() + ": ", [&] {
      static_cast<void>(open_safetensors(path));
    });
    expect_error(ErrorCode::kCorruptData, part, [&] {
      static_cast<void>(open_safetensors(path));
    });
  };
  refused("", "found 0 bytes");
  refused("1234567", "found 7 bytes");
  refused(std::string(8, '\0'), "not valid JSON");
  refused("version https://git-lfs.github.com/spec/v1\n", "git lfs pull");
}

TEST(OpenSafetensors, EveryCutOfAFileIsRefused) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "x.safetensors";
  write_floats(path, {{"a", 1}, {"b", 5}});
  for (auto bytes = fs::file_size(path); bytes-- > 0;) {
    fs::resize_file(path, bytes);
    EXPECT_THROW(static_cast<void>(open_safetensors(path)), Error) << bytes;
  }
}

// ---- Reading data ----------------------------------------------------------

TEST(SafetensorsReader, MappedTensorsOutliveTheReader) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "x.safetensors";
  write_floats(path, {{"a", 1}});
  auto reader = open_safetensors(path);
  std::optional<Tensor> tensor = reader->map(reader->get("a"));
  ASSERT_TRUE(tensor);
  reader.reset();
  EXPECT_EQ(value_at(*tensor, 3), 4);
}

TEST(SafetensorsReader, UnalignedTensorsAreCopied) {
  const TemporaryDirectory directory;
  const std::vector<OutputFile> files{
      {"x.safetensors",
       {{"byte", DType::kU8, {1}, 1, "", 0},
        {"float", DType::kF32, {1}, 4, "", 0}}}};
  SafetensorsSetWriter writer(directory.path(), files);
  const float value = 2.5F;
  writer.write("float", 0, std::as_bytes(std::span(&value, 1)));
  const auto reader = open_safetensors(directory.path() / "x.safetensors");
  EXPECT_TRUE(reader->map(reader->get("byte")));
  EXPECT_FALSE(reader->map(reader->get("float")));
  EXPECT_EQ(value_at(reader->load(reader->get("float")), 0), 2.5F);
}

TEST(SafetensorsReader, TakesCopiesOfATensorsDescription) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "x.safetensors";
  write_floats(path, {{"a", 1}, {"b", 5}});
  const auto reader = open_safetensors(path);
  const TensorInfo copy = reader->get("b");
  EXPECT_EQ(value_at(reader->load_copy(copy), 0), 5);
  EXPECT_EQ(value_at(*reader->map(copy), 0), 5);
  TensorInfo unknown = copy;
  unknown.name = "bb";
  expect_error(ErrorCode::kNotFound, "tensor bb", [&] {
    static_cast<void>(reader->load_copy(unknown));
  });
}

TEST(SafetensorsReader, RefusesSlicesBeyondTheTensor) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "x.safetensors";
  write_floats(path, {{"a", 1}, {"b", 5}});
  const auto reader = open_safetensors(path);
  const TensorInfo& tensor = reader->get("a");
  std::vector<std::byte> out(8);
  EXPECT_NO_THROW(reader->read(tensor, 8, out));
  EXPECT_NO_THROW(reader->drop_cache(tensor, 0, 16));
  expect_error(ErrorCode::kInternal, "expected at most 16", [&] {
    reader->read(tensor, 9, out);
  });
  expect_error(ErrorCode::kInternal, "expected at most 16", [&] {
    reader->read(tensor, ~std::uint64_t{0}, out);
  });
  expect_error(ErrorCode::kInternal, "expected at most 16", [&] {
    reader->drop_cache(tensor, 0, 17);
  });
}

TEST(SafetensorsReader, NoticesAFileThatShrank) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "x.safetensors";
  write_floats(path, {{"a", 1}});
  const auto reader = open_safetensors(path);
  const TensorInfo& tensor = reader->get("a");
  fs::resize_file(path, fs::file_size(path) - 4);
  std::vector<std::byte> out(16);
  expect_error(ErrorCode::kIo, "found the end of the file", [&] {
    reader->read(tensor, 0, out);
  });
  expect_error(ErrorCode::kIo, "when opened", [&] {
    static_cast<void>(reader->map(tensor));
  });
}

TEST(CheckpointReader, SuggestsTheNearestName) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "x.safetensors";
  write_floats(path, {{"model.norm.weight", 1}, {"lm_head.weight", 5}});
  const auto reader = open_safetensors(path);
  EXPECT_EQ(reader->find("lm_head"), nullptr);
  expect_error(ErrorCode::kNotFound, "the nearest name is lm_head.weight", [&] {
    static_cast<void>(reader->get("lm_haed.weight"));
  });
}

TEST(SafetensorsReader, OpensTheBundledModels) {
  const auto reader =
      open_safetensors(fs::path(NIBBLE_SOURCE_DIR) / "models" / "fable-dense");
  const TensorInfo& norm = reader->get("model.norm.weight");
  EXPECT_EQ(norm.dtype, DType::kBF16);
  const Tensor mapped = reader->load(norm);
  const Tensor copy = reader->load_copy(norm);
  ASSERT_EQ(mapped.bytes(), copy.bytes());
  EXPECT_EQ(std::memcmp(mapped.view().data(), copy.view().data(), copy.bytes()),
            0);
}

}  // namespace
}  // namespace nibble::container
