#include "nibble/quant/pipeline/partial/source_watch.h"

#include <chrono>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/pipeline/tiny_checkpoint.h"
#include "temporary_directory.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;

class Watch : public testing::Test {
 protected:
  Watch() {
    write_tiny(source_, {.shards = 3});
    opened_ = load::open_checkpoint(source_);
  }

  [[nodiscard]] fs::path file(std::size_t i) const {
    return opened_.reader->files()[i];
  }

  TemporaryDirectory temporary_;
  const fs::path source_ = temporary_.path() / "in";
  load::CheckpointDirectory opened_;
};

TEST_F(Watch, AcceptsASourceThatStays) {
  const SourceWatch watch(*opened_.reader);
  watch.check_all();
  watch.check(2);
}

TEST_F(Watch, NamesTheFileThatShrankWasWrittenToOrWent) {
  const SourceWatch watch(*opened_.reader);
  fs::resize_file(file(0), fs::file_size(file(0)) - 1);
  fs::last_write_time(
      file(1), fs::last_write_time(file(1)) + std::chrono::milliseconds(1));
  fs::remove(file(2));
  expect_error(
      ErrorCode::kIo, file(0).string() + ": found ", [&] { watch.check(0); });
  expect_error(ErrorCode::kIo, file(1).string() + ": found it written to", [&] {
    watch.check(1);
  });
  expect_error(ErrorCode::kIo, file(2).string() + ": found it gone", [&] {
    watch.check(2);
  });
  EXPECT_THROW(watch.check_all(), Error);
  EXPECT_THROW(SourceWatch{*opened_.reader}, Error);
}

TEST_F(Watch, DigestFollowsSizesAndTimesButNotTheFolder) {
  const std::string before = SourceWatch(*opened_.reader).digest();
  const fs::path moved = temporary_.path() / "moved";
  fs::rename(source_, moved);
  const auto again = load::open_checkpoint(moved);
  EXPECT_EQ(SourceWatch(*again.reader).digest(), before);
  const fs::path first = again.reader->files().front();
  fs::last_write_time(first,
                      fs::last_write_time(first) + std::chrono::seconds(1));
  EXPECT_NE(SourceWatch(*again.reader).digest(), before);
}

}  // namespace
}  // namespace nibble::quant
