#pragma once

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nibble/quant/pipeline/tiny_checkpoint.h"
#include "program.h"
#include "running_program.h"

namespace nibble {

namespace fs = std::filesystem;
using quant::contents_of;
using quant::write_tiny;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

inline constexpr std::int64_t kScale = 16;  // 92 MB: a run lasts some 0.3 s

// A source of three files, and the bytes of an undisturbed run.
class Durable : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new ScratchDirectory;
    write_tiny(shared_->path() / "in",
               {.family = "llama4", .shards = 3, .scale = kScale});
    const auto begin = Clock::now();
    const std::string out = shared_->file("undisturbed");
    const ProgramResult run = run_nibble(command(shared_->file("in"), out));
    ASSERT_EQ(run.status, 0) << run.error;
    duration_ = Clock::now() - begin;
    expected_ = new std::map(contents_of(out));
    fs::remove_all(out);
  }

  static void TearDownTestSuite() {
    delete expected_;
    delete shared_;
  }

  static std::vector<std::string> command(const std::string& source,
                                          const std::string& out) {
    return {"quantize",
            source,
            "--recipe",
            "int4-g64",
            "--shard-size",
            "10MB",
            "--memory",
            "32MiB",
            "-o",
            out};
  }

  [[nodiscard]] static std::vector<std::string> command_here(
      const ScratchDirectory& scratch) {
    return command(shared_->file("in"), scratch.file("out"));
  }

  // Compares and removes a result that was complete when its run was ended;
  // false when there is none.
  static bool had_finished(const ScratchDirectory& scratch) {
    const std::string out = scratch.file("out");
    if (!fs::exists(out)) {
      return false;
    }
    // Whatever stands under the final name is complete; the journal in it says
    // that the run had not cleared up.
    EXPECT_TRUE(fs::exists(out + "/nibble.json"));
    if (fs::exists(out + "/nibble.journal")) {
      return false;
    }
    expect_whole(scratch);
    fs::remove_all(out);
    return true;
  }

  // Runs to the end, compares every byte, and removes the result.
  static void expect_finishes(const ScratchDirectory& scratch) {
    const ProgramResult run = run_nibble(command_here(scratch));
    ASSERT_EQ(run.status, 0) << run.error;
    expect_whole(scratch);
    fs::remove_all(scratch.file("out"));
  }

  static void expect_whole(const ScratchDirectory& scratch) {
    EXPECT_TRUE(contents_of(scratch.file("out")) == *expected_);
    EXPECT_FALSE(fs::exists(scratch.file("out.partial")));
    ++compared_;
  }

  // Waits until some parts of a run are finished; false if it ended before.
  static bool until_under_way(RunningProgram& run,
                              const ScratchDirectory& scratch) {
    return run.until([&] {
      std::uintmax_t bytes = 0;
      std::error_code error;
      for (fs::directory_iterator it(scratch.path() / "out.partial", error),
           end;
           !error && it != end;
           it.increment(error)) {
        if (it->path().filename().string().starts_with("nibble.journal")) {
          bytes += it->file_size(error);
        }
      }
      return bytes > 3000 && !error;
    });
  }

  static void sleep_at_random(std::mt19937& random) {
    const double share =
        std::uniform_real_distribution<double>(0, 1.05)(random);
    std::this_thread::sleep_for(share * duration_);
  }

  inline static ScratchDirectory* shared_ = nullptr;
  inline static std::map<std::string, std::string>* expected_ = nullptr;
  inline static std::chrono::duration<double> duration_{};
  inline static int compared_ = 0;  // results
};

// Kills at random moments of a run until `kills` of them hit one; every second
// time the run that follows is killed as well, so that work is also gone on
// with more than once.
inline void survive(int kills,
                    const std::function<bool(std::mt19937&)>& killed,
                    const std::function<void()>& finish) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  testing::Test::RecordProperty("seed", static_cast<int>(seed));
  std::printf("seed %u\n", seed);
  std::fflush(stdout);  // known even when the test is ended
  std::mt19937 random(seed);
  for (int hit = 0; hit < kills && !testing::Test::HasFatalFailure();) {
    hit += killed(random) ? 1 : 0;
    if (random() % 2 == 0) {
      finish();
    }
  }
  finish();
}

class Kills : public Durable {
 protected:
  void survive_kills(int kills) {
    const ScratchDirectory scratch;
    int published = 0;
    survive(
        kills,
        [&](std::mt19937& random) {
          RunningProgram run(NIBBLE_PROGRAM, command_here(scratch));
          sleep_at_random(random);
          run.signal(SIGKILL);
          const ProgramResult result = run.wait();
          EXPECT_TRUE(result.status == 128 + SIGKILL || result.status == 0)
              << result.error;
          published += had_finished(scratch) ? 1 : 0;
          return result.status == 128 + SIGKILL;
        },
        [&] { expect_finishes(scratch); });
    std::printf(
        "%d kills, %d results were complete before the kill, %d results "
        "compared\n",
        kills,
        published,
        compared_);
  }
};

// Ctrl-C or a kill by a job scheduler: told, status 1, and the way on.
class Signals : public Durable {
 protected:
  void survive_signals(int signals) {
    const ScratchDirectory scratch;
    int stopped = 0;
    survive(
        signals,
        [&](std::mt19937& random) {
          RunningProgram run(NIBBLE_PROGRAM, command_here(scratch));
          const int number = random() % 2 == 0 ? SIGINT : SIGTERM;
          run.until([&] { return handles_signal(run.id(), number); });
          sleep_at_random(random);
          run.signal(number);
          const ProgramResult result = run.wait();
          if (result.status == 0) {
            EXPECT_TRUE(had_finished(scratch));
            return false;
          }
          EXPECT_EQ(result.status, 1) << result.error;
          EXPECT_EQ(result.out, "");
          EXPECT_THAT(result.error, HasSubstr("nibble: interrupted"));
          EXPECT_THAT(result.error, HasSubstr("same command"));
          EXPECT_FALSE(fs::exists(scratch.file("out")));
          ++stopped;
          return true;
        },
        [&] { expect_finishes(scratch); });
    EXPECT_EQ(stopped, signals);
  }
};

// Stops a run in its midst, changes something, and lets it go on.
inline ProgramResult disturbed(
    const std::vector<std::string>& command,
    const std::function<bool(RunningProgram&)>& under_way,
    const std::function<void()>& change) {
  RunningProgram run(NIBBLE_PROGRAM, command);
  if (!under_way(run)) {
    throw std::runtime_error("the run ended too early: " + run.wait().error);
  }
  run.signal(SIGSTOP);
  change();
  run.signal(SIGCONT);
  return run.wait();
}

}  // namespace nibble
