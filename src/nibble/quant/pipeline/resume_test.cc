// Runs that are stopped: what stays, what is removed, and that going on gives
// the bytes of an undisturbed run.

#include <atomic>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/files/file.h"
#include "nibble/quant/pipeline/resume_fixture.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;

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
  const auto refused = [&](const std::string& recipe, const std::string& part) {
    expect_error(
        ErrorCode::kInvalidArgument,
        "found the partial result of " + part,
        [&] { static_cast<void>(quantize_to(source_, recipe, options_)); });
  };
  refused(one_rule(R"("scheme": "int8", "group": "channel")"),
          "another recipe");
  QuantizeOptions others = options_;
  options_.shard_bytes = 50'000;
  refused(kRecipe, "other options");
  options_ = others;
  write_tiny(source_, {.family = "llama4"});  // the same, written later
  refused(kRecipe, "another source: " + source_.string() + " changed since");
  EXPECT_TRUE(fs::exists(partial_ / kJournalName));
}

// A failure at the start of a run that goes on must not cost what was done.
TEST_F(Resume, KeepsEarlierWorkWhateverStopsTheNextRun) {
  StepCounter full("write", 60, [] { fail(ErrorCode::kIo, "disk is full"); });
  EXPECT_THROW(static_cast<void>(run(full)), Error);
  for (const ErrorCode code :
       {ErrorCode::kIo, ErrorCode::kOverBudget, ErrorCode::kInternal}) {
    StepCounter early("reserve", 0, [&] { fail(code, "something broke"); });
    expect_error(code, "nibble clean " + partial_.string(), [&] {
      static_cast<void>(run(early));
    });
  }
  EXPECT_GT(quantize_to(source_, kRecipe, options_).resumed_parts, 5u);
  expect_same_bytes();
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

}  // namespace
}  // namespace nibble::quant
