// Sets of files in every container: written, left unfinished, gone on with.
#include "nibble/container/file_set.h"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/container/torch_pickle/reader.h"
#include "temporary_directory.h"

namespace nibble::container {
namespace {

namespace fs = std::filesystem;

TensorInfo tensor(const std::string& name, std::int64_t elements) {
  return {name,
          DType::kU8,
          {elements},
          static_cast<std::uint64_t>(elements),
          "",
          0};
}

class FileSet : public testing::TestWithParam<FileKind> {
 protected:
  [[nodiscard]] bool torch() const { return GetParam() == FileKind::kTorch; }

  // Two files whose tensors bear the same names inside, where that is possible.
  [[nodiscard]] std::vector<OutputFile> files() const {
    if (torch()) {
      return {
          {"a.pth", {tensor("rank0/x", 5), tensor("rank0/y", 70)}, "rank0/"},
          {"b.pth", {tensor("rank1/x", 3)}, "rank1/"}};
    }
    return {{"a.safetensors", {tensor("rank0/x", 5), tensor("rank0/y", 70)}},
            {"b.safetensors", {tensor("rank1/x", 3)}}};
  }

  static std::vector<std::byte> bytes(std::size_t count, int value) {
    return std::vector<std::byte>(count, std::byte(value));
  }

  void write_all(CheckpointWriter& writer) const {
    writer.write("rank0/x", 0, bytes(5, 1));
    writer.write("rank0/y", 0, bytes(70, 2));
    writer.write("rank1/x", 0, bytes(3, 3));
  }

  [[nodiscard]] std::string file_text(const fs::path& directory,
                                      std::size_t file) const {
    return read_text_file(directory / files()[file].name);
  }

  TemporaryDirectory temporary_;
  fs::path here_ = temporary_.path();
};

TEST_P(FileSet, HoldsWhatWasWritten) {
  const auto writer =
      write_files(GetParam(), here_, files(), ExistingFiles::kReplace);
  write_all(*writer);
  writer->finish();
  writer->sync();
  const fs::path second = here_ / files()[1].name;
  const auto reader =
      torch() ? open_torch_file(second) : open_safetensors(second);
  ASSERT_EQ(reader->tensors().size(), 1U);
  const TensorInfo& found = reader->tensors()[0];
  EXPECT_EQ(found.name, torch() ? "x" : "rank1/x");
  const Tensor data = reader->load_copy(found);
  EXPECT_EQ(std::memcmp(data.view().data(), bytes(3, 3).data(), 3), 0);
}

TEST_P(FileSet, IsAsLargeAsPlanned) {
  const auto writer =
      write_files(GetParam(), here_, files(), ExistingFiles::kReplace);
  write_all(*writer);
  writer->finish();
  for (const OutputFile& file : files()) {
    std::uint64_t planned = overhead_bytes(GetParam(), file);
    for (const TensorInfo& one : file.tensors) {
      planned += one.bytes;
    }
    const std::uint64_t found = fs::file_size(here_ / file.name);
    // The text of a safetensors header is padded and names the framework.
    EXPECT_LE(found - planned, torch() ? 0U : 64U) << file.name;
  }
}

// A file that was left without finish() is read back, gone on with, and has
// the bytes of one that was written at once.
TEST_P(FileSet, GoesOnWithUnfinishedFiles) {
  {
    const auto writer =
        write_files(GetParam(), here_, files(), ExistingFiles::kReplace);
    writer->write("rank0/x", 0, bytes(5, 1));
    writer->write("rank0/y", 0, bytes(70, 9));  // replaced below
  }
  const auto writer =
      write_files(GetParam(), here_, files(), ExistingFiles::kContinue);
  std::vector<std::byte> found(4);
  writer->read("rank0/x", 1, found);
  EXPECT_EQ(found, bytes(4, 1));
  writer->write("rank0/y", 0, bytes(70, 2));
  writer->write("rank1/x", 0, bytes(3, 3));
  writer->finish();
  writer->finish();  // as after a crash behind the first one

  const TemporaryDirectory other;
  const auto whole =
      write_files(GetParam(), other.path(), files(), ExistingFiles::kReplace);
  write_all(*whole);
  whole->finish();
  EXPECT_EQ(file_text(here_, 0), file_text(other.path(), 0));
  EXPECT_EQ(file_text(here_, 1), file_text(other.path(), 1));
}

TEST_P(FileSet, RefusesWhatWasNotPlanned) {
  const auto writer =
      write_files(GetParam(), here_, files(), ExistingFiles::kReplace);
  expect_error(ErrorCode::kInternal, "rank2/x", [&] {
    writer->write("rank2/x", 0, bytes(1, 0));
  });
  expect_error(ErrorCode::kInternal, "rank1/x", [&] {
    writer->write("rank1/x", 2, bytes(2, 0));
  });
  std::vector<std::byte> out(6);
  expect_error(ErrorCode::kInternal, "rank0/x", [&] {
    writer->read("rank0/x", 0, out);
  });
  std::vector<OutputFile> twice = files();
  twice[1].tensors = {twice[0].tensors[0]};
  twice[1].prefix = twice[0].prefix;
  expect_error(ErrorCode::kInvalidArgument, "rank0/x: found twice", [&] {
    static_cast<void>(
        write_files(GetParam(), here_, twice, ExistingFiles::kReplace));
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds,
                         FileSet,
                         testing::Values(FileKind::kSafetensors,
                                         FileKind::kTorch),
                         [](const auto& suite) {
                           return std::string(suite.param == FileKind::kTorch
                                                  ? "torch"
                                                  : "safetensors");
                         });

}  // namespace
}  // namespace nibble::container
