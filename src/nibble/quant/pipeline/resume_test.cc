// Runs that are stopped: what stays, what is removed, and that going on gives
// the bytes of an undisturbed run.

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <map>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/file.h"
#include "nibble/base/parallel.h"
#include "nibble/quant/pipeline/journal.h"
#include "nibble/quant/pipeline/quantize.h"
#include "nibble/quant/pipeline/tiny_checkpoint.h"
#include "temporary_directory.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;

const std::string kRecipe = one_rule(R"("scheme": "int4", "group": 32)");

// Counts steps of one kind, or of any when name is empty, and acts at one.
class StepCounter {
 public:
  StepCounter(std::string name, int at, std::function<void()> action)
      : name_(std::move(name)), at_(at), action_(std::move(action)) {}

  void operator()(std::string_view step) {
    if ((name_.empty() || step == name_) && count_.fetch_add(1) == at_) {
      action_();
    }
  }

  [[nodiscard]] int count() const { return count_.load(); }

 private:
  std::string name_;
  int at_;
  std::function<void()> action_;
  std::atomic<int> count_{0};
};

class Resume : public testing::Test {
 protected:
  Resume() {
    write_tiny(source_, {.family = "llama4"});
    options_.output = output_;
    options_.shard_bytes = 40'000;
    QuantizeOptions plain = options_;
    plain.output = temporary_.path() / "undisturbed";
    static_cast<void>(quantize_to(source_, kRecipe, plain));
    expected_ = contents_of(plain.output);
  }

  // Runs with counter as the hook.
  QuantizeReport run(StepCounter& counter) {
    QuantizeOptions options = options_;
    options.before_step = [&](std::string_view step) { counter(step); };
    return quantize_to(source_, kRecipe, options);
  }

  void expect_same_bytes() const {
    EXPECT_TRUE(contents_of(output_) == expected_);
    EXPECT_FALSE(fs::exists(partial_));
    EXPECT_FALSE(fs::exists(output_ / kJournalName));
  }

  // A run in another process that dies by SIGKILL at the step; false when it
  // came to its end before.
  bool killed_at(int step) {
    const pid_t child = ::fork();
    if (child == 0) {
      set_thread_count(1);  // threads of the parent are not in the child
      StepCounter counter("", step, [] { std::raise(SIGKILL); });
      try {
        static_cast<void>(run(counter));
      } catch (...) {
        ::_exit(3);
      }
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      return false;
    }
    return WTERMSIG(status) == SIGKILL;
  }

  TemporaryDirectory temporary_;
  const fs::path source_ = temporary_.path() / "in";
  const fs::path output_ = temporary_.path() / "out";
  const fs::path partial_ = temporary_.path() / "out.partial";
  QuantizeOptions options_;
  std::map<std::string, std::string> expected_;
};

// Every step of a run, one after the other: each kill, then the same call.
TEST_F(Resume, SurvivesAKillAtEveryStep) {
  set_thread_count(1);
  int step = 0;
  for (; killed_at(step); step += step < 20 ? 1 : 3) {
    SCOPED_TRACE(step);
    // Whatever stands under the final name is complete.
    if (fs::exists(output_)) {
      EXPECT_TRUE(fs::exists(output_ / "nibble.json"));
    }
    static_cast<void>(quantize_to(source_, kRecipe, options_));
    expect_same_bytes();
    fs::remove_all(output_);
  }
  EXPECT_GT(step, 60);
  expect_same_bytes();
  set_thread_count(0);
}

// A run that is killed again and again gets there in the end.
TEST_F(Resume, SurvivesManyKillsOfOneRun) {
  set_thread_count(1);
  int kills = 0;
  while (killed_at(12 + kills % 5)) {
    ASSERT_LT(++kills, 200);
    options_.overwrite = kills % 2 == 0;
  }
  EXPECT_GT(kills, 3);
  expect_same_bytes();
  set_thread_count(0);
}

TEST_F(Resume, DoesFinishedPartsOnce) {
  StepCounter full("write", 40, [] { fail(ErrorCode::kIo, "disk is full"); });
  expect_error(ErrorCode::kIo, "run the same command again to go on", [&] {
    static_cast<void>(run(full));
  });
  EXPECT_TRUE(fs::exists(partial_ / kJournalName));
  EXPECT_FALSE(fs::exists(output_));
  StepCounter rest("write", -1, [] {});
  const QuantizeReport report = run(rest);
  EXPECT_GT(report.resumed_parts, 5u);
  expect_same_bytes();
  StepCounter all("write", -1, [] {});
  options_.overwrite = true;
  static_cast<void>(run(all));
  EXPECT_LT(rest.count(), all.count());
}

// Memory and threads may differ between the runs.
TEST_F(Resume, GoesOnWithOtherMemoryAndThreads) {
  StepCounter full("write", 40, [] { fail(ErrorCode::kIo, "disk is full"); });
  EXPECT_THROW(static_cast<void>(run(full)), Error);
  set_thread_count(5);
  options_.memory_bytes = 3 << 20;
  EXPECT_GT(quantize_to(source_, kRecipe, options_).resumed_parts, 0u);
  set_thread_count(0);
  expect_same_bytes();
}

TEST_F(Resume, RedoesPartsWhoseBytesWereLost) {
  StepCounter full("sync", 0, [] { fail(ErrorCode::kIo, "disk is broken"); });
  EXPECT_THROW(static_cast<void>(run(full)), Error);
  // A crash of the machine may lose pages that no sync had reached.
  for (const auto& entry : fs::directory_iterator(partial_)) {
    if (entry.path().extension() == ".safetensors") {
      const File file = File::open_write(entry.path());
      const std::vector<std::byte> zeros(4096);
      file.write(file.size_bytes() - zeros.size(), zeros);
    }
  }
  static_cast<void>(quantize_to(source_, kRecipe, options_));
  expect_same_bytes();
}

TEST_F(Resume, IgnoresATornLineOfTheJournal) {
  StepCounter full("write", 40, [] { fail(ErrorCode::kIo, "disk is full"); });
  EXPECT_THROW(static_cast<void>(run(full)), Error);
  const fs::path journal = partial_ / kJournalName;
  fs::resize_file(journal, fs::file_size(journal) - 7);
  static_cast<void>(quantize_to(source_, kRecipe, options_));
  expect_same_bytes();
}

TEST_F(Resume, RefusesToGoOnWithSomethingElse) {
  StepCounter full("write", 40, [] { fail(ErrorCode::kIo, "disk is full"); });
  EXPECT_THROW(static_cast<void>(run(full)), Error);
  const auto refused = [&](const std::string& recipe) {
    expect_error(
        ErrorCode::kInvalidArgument,
        "found the partial result of another source, recipe or "
        "version",
        [&] { static_cast<void>(quantize_to(source_, recipe, options_)); });
  };
  refused(one_rule(R"("scheme": "int8", "group": "channel")"));
  write_tiny(source_, {.family = "llama4"});  // the same, written later
  refused(kRecipe);
  EXPECT_TRUE(fs::exists(partial_ / kJournalName));
}

TEST_F(Resume, RefusesASecondProcessAtTheSameOutput) {
  bool seen = false;
  StepCounter second("write", 3, [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      set_thread_count(1);
      try {
        static_cast<void>(quantize_to(source_, kRecipe, options_));
      } catch (const Error& error) {
        const std::string text = error.what();
        ::_exit(text.find("another process") != text.npos ? 7 : 1);
      }
      ::_exit(2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    seen = WIFEXITED(status) && WEXITSTATUS(status) == 7;
  });
  set_thread_count(1);
  static_cast<void>(run(second));
  set_thread_count(0);
  EXPECT_TRUE(seen);
  expect_same_bytes();
}

TEST_F(Resume, StopsCleanlyWhenAsked) {
  std::atomic<bool> stop{false};
  QuantizeOptions options = options_;
  std::atomic<int> writes{0};
  options.before_step = [&](std::string_view step) {
    if (step == "write" && ++writes == 30) {
      stop = true;
    }
  };
  expect_error(ErrorCode::kInterrupted, "run the same command again", [&] {
    static_cast<void>(quantize(load::open_checkpoint(source_),
                               load_recipe(kRecipe),
                               options,
                               null_progress(),
                               stop));
  });
  EXPECT_FALSE(fs::exists(output_));
  EXPECT_GT(quantize_to(source_, kRecipe, options_).resumed_parts, 0u);
  expect_same_bytes();
}

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

// A real full disk, where the machine lets us make one.
TEST_F(Resume, PlansForTheDiskThatIsThere) {
  const fs::path small = temporary_.path() / "small";
  fs::create_directory(small);
  const std::string mount =
      "mount -t tmpfs -o size=300k tmpfs " + small.string() + " 2>/dev/null";
  if (::geteuid() != 0 || std::system(mount.c_str()) != 0) {
    GTEST_SKIP() << "needs root to make a small disk";
  }
  options_.output = small / "out";
  expect_error(ErrorCode::kIo, "of free disk space, expected", [&] {
    static_cast<void>(quantize_to(source_, kRecipe, options_));
  });
  EXPECT_TRUE(fs::is_empty(small));
  EXPECT_EQ(std::system(("umount " + small.string()).c_str()), 0);
}

}  // namespace
}  // namespace nibble::quant
