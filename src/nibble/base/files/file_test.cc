#include "nibble/base/files/file.h"

#include <array>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "temporary_directory.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string read(const File& file, std::uint64_t offset, std::size_t bytes) {
  std::string text(bytes, '?');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(File, WritesAndReadsAtAnyPosition) {
  const TemporaryDirectory directory;
  const File file = File::create(directory.path() / "a");
  file.write(4, bytes_of("world"));
  file.write(0, bytes_of("abcd"));
  EXPECT_EQ(file.size_bytes(), 9u);
  EXPECT_EQ(read(file, 2, 4), "cdwo");
  file.drop_cache(0, 9);
  file.sync();
  EXPECT_EQ(read(File::open_read(directory.path() / "a"), 0, 9), "abcdworld");
}

TEST(File, CreateEmptiesAndOpenWriteKeeps) {
  const TemporaryDirectory directory;
  const fs::path path = directory.add("a", "old content");
  File::open_write(path).write(0, bytes_of("new"));
  EXPECT_EQ(read_text_file(path), "new content");
  File::create(path).write(0, bytes_of("x"));
  EXPECT_EQ(read_text_file(path), "x");
}

TEST(File, ThreadsWriteTheirOwnParts) {
  const TemporaryDirectory directory;
  const File file = File::create(directory.path() / "a");
  file.reserve(8 * 1000);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&file, i] {
      const std::string part(1000, static_cast<char>('a' + i));
      file.write(i * 1000, bytes_of(part));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(read(file, i * 1000, 1000),
              std::string(1000, static_cast<char>('a' + i)));
  }
}

TEST(File, ReserveSetsTheLengthWithZeros) {
  const TemporaryDirectory directory;
  const File file = File::create(directory.path() / "a");
  file.reserve(5000);
  EXPECT_EQ(file.size_bytes(), 5000u);
  EXPECT_EQ(read(file, 4990, 10), std::string(10, '\0'));
  file.reserve(0);
  EXPECT_EQ(file.size_bytes(), 0u);
}

TEST(File, ReservingMoreThanTheDiskHasIsAnError) {
  const TemporaryDirectory directory;
  const File file = File::create(directory.path() / "a");
  expect_error(ErrorCode::kIo, (directory.path() / "a").string(), [&] {
    file.reserve(std::uint64_t{1} << 62);
  });
}

TEST(File, ReadingPastTheEndTellsThatTheFileIsShort) {
  const TemporaryDirectory directory;
  const File file = File::open_read(directory.add("a", "12345"));
  expect_error(ErrorCode::kIo, "byte 5, expected 2 more", [&] {
    static_cast<void>(read(file, 3, 4));
  });
}

TEST(File, AnAbsentFileIsNotFound) {
  expect_error(ErrorCode::kNotFound, "/no/such/file", [] {
    static_cast<void>(File::open_read("/no/such/file"));
  });
  expect_error(ErrorCode::kIo, "/no/such/file", [] {
    static_cast<void>(File::create("/no/such/file"));
  });
}

TEST(File, OnlyRegularFilesAreOpened) {
  const TemporaryDirectory directory;
  expect_error(ErrorCode::kIo, "expected a regular file", [&] {
    static_cast<void>(File::open_read(directory.path()));
  });
  // A pipe without a writer must not make us wait for one.
  const fs::path pipe = directory.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error(ErrorCode::kIo, "expected a regular file", [&] {
    static_cast<void>(File::open_read(pipe));
  });
}

TEST(File, MovesKeepTheDescriptor) {
  const TemporaryDirectory directory;
  File first = File::open_read(directory.add("a", "aaa"));
  File second = std::move(first);
  EXPECT_EQ(read(second, 0, 3), "aaa");
  second = File::open_read(directory.add("b", "bbb"));
  EXPECT_EQ(read(second, 0, 3), "bbb");
  EXPECT_EQ(second.path().filename(), "b");
}

TEST(MappedFile, ShowsTheBytes) {
  const TemporaryDirectory directory;
  const MappedFile mapped(File::open_read(directory.add("a", "hello")));
  ASSERT_EQ(mapped.bytes().size(), 5u);
  EXPECT_EQ(mapped.bytes()[4], std::byte{'o'});
}

TEST(MappedFile, AnEmptyFileIsEmpty) {
  const TemporaryDirectory directory;
  const MappedFile mapped(File::open_read(directory.add("a", "")));
  EXPECT_TRUE(mapped.bytes().empty());
}

TEST(ReadTextFile, RefusesLargerFilesThanAllowed) {
  const TemporaryDirectory directory;
  const fs::path path = directory.add("a", "12345");
  EXPECT_EQ(read_text_file(path, 5), "12345");
  expect_error(ErrorCode::kCorruptData,
               "found 5 bytes, expected at most 4",
               [&] { static_cast<void>(read_text_file(path, 4)); });
}

TEST(WriteFileAtomically, ReplacesAndLeavesNothingElse) {
  const TemporaryDirectory directory;
  const fs::path path = directory.add("a", "a long old content");
  write_file_atomically(path, "new");
  EXPECT_EQ(read_text_file(path), "new");
  EXPECT_FALSE(fs::exists(directory.path() / "a.tmp"));
}

TEST(WriteFileAtomically, AFailureLeavesNoTemporaryFile) {
  const TemporaryDirectory directory;
  // A directory that is not empty cannot be replaced by a file.
  directory.add("a/inner", "x");
  EXPECT_THROW(write_file_atomically(directory.path() / "a", "new"), Error);
  EXPECT_FALSE(fs::exists(directory.path() / "a.tmp"));
  EXPECT_TRUE(fs::exists(directory.path() / "a" / "inner"));
}

TEST(RenameFile, MovesDirectoriesToo) {
  const TemporaryDirectory directory;
  directory.add("x.partial/file", "1");
  rename_file(directory.path() / "x.partial", directory.path() / "x");
  EXPECT_EQ(read_text_file(directory.path() / "x" / "file"), "1");
  expect_error(ErrorCode::kIo, "rename", [&] {
    rename_file(directory.path() / "none", directory.path() / "y");
  });
}

TEST(SyncDirectory, RefusesWhatIsNone) {
  const TemporaryDirectory directory;
  EXPECT_NO_THROW(sync_directory(directory.path()));
  expect_error(ErrorCode::kIo, "open directory", [&] {
    sync_directory(directory.add("a", ""));
  });
}

TEST(FreeDiskBytes, AsksTheNearestExistingParent) {
  const TemporaryDirectory directory;
  EXPECT_GT(free_disk_bytes(directory.path() / "not" / "yet"), 0u);
}

}  // namespace
}  // namespace nibble
