// Failures of disks, of folders and of the source while a run goes on: each is
// told, leaves nothing under the final name, and the same call succeeds once
// its cause is gone.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/files/file.h"
#include "nibble/quant/pipeline/partial/partial.h"
#include "nibble/quant/pipeline/resume_fixture.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;

// ---- Failures at every kind of step ----------------------------------------

class Fault : public Resume, public testing::WithParamInterface<const char*> {};

TEST_P(Fault, LeavesNothingUnderTheFinalNameAndCanGoOn) {
  StepCounter broken(
      GetParam(), 0, [] { fail(ErrorCode::kIo, "No space left on device"); });
  expect_error(ErrorCode::kIo, "No space left on device", [&] {
    static_cast<void>(run(broken));
  });
  EXPECT_FALSE(fs::exists(output_));
  static_cast<void>(quantize_to(source_, kRecipe, options_));
  expect_same_bytes();
}

INSTANTIATE_TEST_SUITE_P(Steps,
                         Fault,
                         testing::Values("create",
                                         "reserve",
                                         "write",
                                         "journal",
                                         "finish",
                                         "sync",
                                         "index",
                                         "side file",
                                         "config",
                                         "check",
                                         "receipt",
                                         "rename"));

// Bytes that rot between writing and reading back are found by the check.
TEST_F(Resume, FindsBytesThatChangedOnDisk) {
  StepCounter rot("check", 0, [&] {
    for (const auto& entry : fs::directory_iterator(partial_)) {
      if (entry.path().extension() == ".safetensors") {
        const File file = File::open_write(entry.path());
        std::byte last{};
        file.read(file.size_bytes() - 1, {&last, 1});
        last ^= std::byte{1};
        file.write(file.size_bytes() - 1, {&last, 1});
        return;
      }
    }
  });
  expect_error(ErrorCode::kCheckFailed, "found checksum", [&] {
    static_cast<void>(run(rot));
  });
  EXPECT_FALSE(fs::exists(output_));
  // The damaged part is noticed and done again.
  static_cast<void>(quantize_to(source_, kRecipe, options_));
  expect_same_bytes();
}

// ---- Faults of the system itself -------------------------------------------

// A small disk, where the machine lets us make one.
class SmallDisk {
 public:
  explicit SmallDisk(fs::path path, const std::string& options)
      : path_(std::move(path)) {
    fs::create_directory(path_);
    const std::string command = "mount -t tmpfs -o " + options + " tmpfs " +
                                path_.string() + " 2>/dev/null";
    mounted_ = ::geteuid() == 0 && std::system(command.c_str()) == 0;
  }

  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  ~SmallDisk() {
    if (mounted_) {
      ::umount2(path_.c_str(), MNT_DETACH);
    }
  }

  [[nodiscard]] bool mounted() const { return mounted_; }

 private:
  fs::path path_;
  bool mounted_ = false;
};

TEST_F(Resume, PlansForTheDiskThatIsThere) {
  const fs::path small = temporary_.path() / "small";
  const SmallDisk disk(small, "size=300k");
  if (!disk.mounted()) {
    GTEST_SKIP() << "needs root to make a small disk";
  }
  options_.output = small / "out";
  expect_error(ErrorCode::kIo, "of free disk space, expected", [&] {
    static_cast<void>(quantize_to(source_, kRecipe, options_));
  });
  EXPECT_TRUE(fs::is_empty(small));
}

// Others fill the disk while the run goes on.
TEST_F(Resume, OutlivesADiskThatBecomesFull) {
  const fs::path small = temporary_.path() / "small";
  const SmallDisk disk(small, "size=4m");
  if (!disk.mounted()) {
    GTEST_SKIP() << "needs root to make a small disk";
  }
  options_.output = small / "out";
  for (const char* step : {"reserve", "side file", "config", "receipt"}) {
    SCOPED_TRACE(step);
    StepCounter fill(step, 0, [&] {
      const File junk = File::create(small / "junk");
      const std::vector<std::byte> block(4096);
      try {
        for (std::uint64_t at = 0;; at += block.size()) {
          junk.write(at, block);
        }
      } catch (const Error&) {
        return;
      }
    });
    expect_error(ErrorCode::kIo, "No space left on device", [&] {
      static_cast<void>(run(fill));
    });
    EXPECT_FALSE(fs::exists(small / "out"));
    fs::remove(small / "junk");
    // Once items were finished they are not done again.
    StepCounter rest("write", -1, [] {});
    static_cast<void>(run(rest));
    EXPECT_EQ(rest.count() == 0, step != std::string("reserve"));
    EXPECT_TRUE(contents_of(small / "out") == expected_);
    fs::remove_all(small / "out");
  }
}

TEST_F(Resume, RefusesADiskThatIsReadOnly) {
  const fs::path small = temporary_.path() / "small";
  const SmallDisk disk(small, "ro,size=4m");
  if (!disk.mounted()) {
    GTEST_SKIP() << "needs root to make a disk that is read-only";
  }
  options_.output = small / "out";
  expect_error(ErrorCode::kIo, "Read-only file system", [&] {
    static_cast<void>(quantize_to(source_, kRecipe, options_));
  });
}

// As somebody who may not write where others left a partial result.
TEST_F(Resume, RefusesAPartialResultThatItMayNotWrite) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root to become somebody else";
  }
  StepCounter full("write", 40, [] { fail(ErrorCode::kIo, "disk is full"); });
  EXPECT_THROW(static_cast<void>(run(full)), Error);
  fs::permissions(temporary_.path(), fs::perms::all);
  const pid_t child = ::fork();
  if (child == 0) {
    set_thread_count(1);
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) {
      ::_exit(4);
    }
    try {
      static_cast<void>(quantize_to(source_, kRecipe, options_));
    } catch (const Error& error) {
      const std::string text = error.what();
      ::_exit(error.code() == ErrorCode::kIo &&
                      text.find("Permission denied") != text.npos
                  ? 7
                  : 1);
    }
    ::_exit(2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  EXPECT_GT(quantize_to(source_, kRecipe, options_).resumed_parts, 0u);
  expect_same_bytes();
}

// Somebody takes the name of the result while it is being made.
TEST_F(Resume, KeepsTheResultWhenItsNameIsTaken) {
  StepCounter taken(
      "rename", 0, [&] { temporary_.add("out", "a file of somebody else"); });
  expect_error(
      ErrorCode::kIo, "nibble clean", [&] { static_cast<void>(run(taken)); });
  EXPECT_EQ(read_text_file(output_), "a file of somebody else");
  fs::remove(output_);
  StepCounter rest("write", -1, [] {});
  static_cast<void>(run(rest));
  EXPECT_EQ(rest.count(), 0);
  expect_same_bytes();
}

// ---- Faults of the source --------------------------------------------------

// Passes everything on to another reader until it fails.
class FaultyReader final : public container::CheckpointReader {
 public:
  FaultyReader(std::unique_ptr<container::CheckpointReader> inner,
               int good_reads)
      : inner_(std::move(inner)), left_(good_reads) {
    index_names();
  }

  std::span<const container::TensorInfo> tensors() const override {
    return inner_->tensors();
  }

  const std::map<std::string, std::string>& metadata() const override {
    return inner_->metadata();
  }

  std::span<const fs::path> files() const override { return inner_->files(); }

  void read(const container::TensorInfo& tensor,
            std::uint64_t offset,
            std::span<std::byte> out) const override {
    if (left_.fetch_sub(1) <= 0) {
      errno = EIO;
      fail_errno("read", files()[tensor.file].string());
    }
    inner_->read(tensor, offset, out);
  }

  std::optional<Tensor> map(
      const container::TensorInfo& tensor) const override {
    return inner_->map(tensor);
  }

  void drop_cache(const container::TensorInfo& tensor,
                  std::uint64_t offset,
                  std::uint64_t bytes) const override {
    inner_->drop_cache(tensor, offset, bytes);
  }

 private:
  std::unique_ptr<container::CheckpointReader> inner_;
  mutable std::atomic<int> left_;
};

TEST_F(Resume, OutlivesAReadErrorOfTheSource) {
  const std::atomic<bool> stop{false};
  for (const int good_reads : {0, 1, 150, 400}) {
    SCOPED_TRACE(good_reads);
    load::CheckpointDirectory source = load::open_checkpoint(source_);
    source.reader =
        std::make_unique<FaultyReader>(std::move(source.reader), good_reads);
    expect_error(ErrorCode::kIo, "model.safetensors: Input/output error", [&] {
      static_cast<void>(quantize(
          source, load_recipe(kRecipe), options_, null_progress(), stop));
    });
    EXPECT_FALSE(fs::exists(output_));
  }
  EXPECT_GT(quantize_to(source_, kRecipe, options_).resumed_parts, 0u);
  expect_same_bytes();
}

// What happens to the source's one file at a step of the run.
struct SourceFault {
  const char* step;
  int at;
};

class SourceFaults : public Resume,
                     public testing::WithParamInterface<SourceFault> {
 protected:
  // Runs into change at the step, which must be told by a message with part;
  // restore must make the next run finish.
  void expect_told(const std::string& part,
                   const std::function<void(const fs::path&)>& change,
                   const std::function<void(const fs::path&)>& restore) {
    const fs::path file = source_ / "model.safetensors";
    StepCounter fault(GetParam().step, GetParam().at, [&] { change(file); });
    expect_error(ErrorCode::kIo, file.string() + ": " + part, [&] {
      static_cast<void>(run(fault));
    });
    EXPECT_FALSE(fs::exists(output_));
    restore(file);
    static_cast<void>(quantize_to(source_, kRecipe, options_));
    expect_same_bytes();
  }
};

TEST_P(SourceFaults, AFileThatShrinksIsTold) {
  const fs::path file = source_ / "model.safetensors";
  const fs::path copy = temporary_.path() / "copy";
  fs::copy_file(file, copy);
  expect_told(
      "found ",
      [](const fs::path& at) { fs::resize_file(at, 1000); },
      [&](const fs::path& at) {
        // Written anew it is another source, so the work begins anew.
        fs::remove(at);
        fs::copy_file(copy, at);
        fs::remove_all(partial_);
      });
}

TEST_P(SourceFaults, AFileThatIsWrittenToIsTold) {
  expect_told(
      "found it written to",
      [](const fs::path& at) {
        const File file = File::open_write(at);
        std::byte last{};
        file.read(file.size_bytes() - 1, {&last, 1});
        file.write(file.size_bytes() - 1, {&last, 1});
        fs::last_write_time(at,
                            fs::last_write_time(at) + std::chrono::seconds(1));
      },
      [&](const fs::path& at) {
        // As it was, to the time: the work goes on.
        fs::last_write_time(at,
                            fs::last_write_time(at) - std::chrono::seconds(1));
        fs::remove_all(partial_);
      });
}

TEST_P(SourceFaults, AFileThatIsDeletedIsToldAndCanComeBack) {
  const fs::path away = temporary_.path() / "away";
  expect_told(
      "found it gone",
      [&](const fs::path& at) { fs::rename(at, away); },
      [&](const fs::path& at) { fs::rename(away, at); });
}

INSTANTIATE_TEST_SUITE_P(Moments,
                         SourceFaults,
                         testing::Values(SourceFault{"write", 0},
                                         SourceFault{"write", 60},
                                         SourceFault{"sync", 0}));

TEST_F(Resume, TellsASideFileThatIsDeleted) {
  StepCounter fault("side file", 0, [&] { fs::remove(source_ / "LICENSE"); });
  expect_error(ErrorCode::kIo, "LICENSE: found it gone", [&] {
    static_cast<void>(run(fault));
  });
  EXPECT_FALSE(fs::exists(output_));
}

}  // namespace
}  // namespace nibble::quant
