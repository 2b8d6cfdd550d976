// What quantize leaves when it is killed, interrupted, limited or loses its
// source, as people meet it: through the program.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/quant/pipeline/tiny_checkpoint.h"
#include "program.h"
#include "running_program.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using quant::contents_of;
using quant::write_tiny;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr std::int64_t kScale = 16;  // 92 MB: a run lasts some 0.3 s

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
    const fs::path journal = scratch.path() / "out.partial" / "nibble.journal";
    return run.until([&] {
      std::error_code error;
      return fs::file_size(journal, error) > 2000 && !error;
    });
  }

  static void sleep_at_random(std::mt19937& random) {
    const double share =
        std::uniform_real_distribution<double>(0, 1.05)(random);
    std::this_thread::sleep_for(share * duration_);
  }

  static ScratchDirectory* shared_;
  static std::map<std::string, std::string>* expected_;
  static std::chrono::duration<double> duration_;
  static int compared_;
};

ScratchDirectory* Durable::shared_ = nullptr;
std::map<std::string, std::string>* Durable::expected_ = nullptr;
std::chrono::duration<double> Durable::duration_{};
int Durable::compared_ = 0;

// Kills at random moments of a run until `kills` of them hit one; every second
// time the run that follows is killed as well, so that work is also gone on
// with more than once.
void survive(int kills,
             const std::function<bool(std::mt19937&)>& killed,
             const std::function<void()>& finish) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  testing::Test::RecordProperty("seed", static_cast<int>(seed));
  std::printf("seed %u\n", seed);
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
    std::printf("%d kills, %d runs had published before, %d results compared\n",
                kills,
                published,
                compared_);
  }
};

TEST_F(Kills, AtRandomMomentsChangeNoByte) {
  survive_kills(10);
}

// Ctrl-C or a kill by a job scheduler: told, status 1, and the way on.
TEST_F(Durable, SignalsAtRandomMomentsStopCleanly) {
  const ScratchDirectory scratch;
  int stopped = 0;
  survive(
      6,
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
  EXPECT_EQ(stopped, 6);
}

// Stops a run in its midst, changes something, and lets it go on.
ProgramResult disturbed(const std::vector<std::string>& command,
                        const std::function<bool(RunningProgram&)>& under_way,
                        const std::function<void()>& change) {
  for (;;) {
    RunningProgram run(NIBBLE_PROGRAM, command);
    if (!under_way(run)) {
      throw std::runtime_error("the run ended too early: " + run.wait().error);
    }
    run.signal(SIGSTOP);
    change();
    run.signal(SIGCONT);
    return run.wait();
  }
}

TEST_F(Durable, TellsAShardThatIsDeletedAndGoesOnWhenItIsBack) {
  const ScratchDirectory scratch;
  const std::string shard =
      shared_->file("in/model-00003-of-00003.safetensors");
  const ProgramResult result = disturbed(
      command_here(scratch),
      [&](RunningProgram& run) { return until_under_way(run, scratch); },
      [&] { fs::rename(shard, scratch.file("away")); });
  fs::rename(scratch.file("away"), shard);
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.error, HasSubstr(shard + ": found it gone"));
  EXPECT_THAT(result.error, HasSubstr("run the same command again"));
  EXPECT_FALSE(fs::exists(scratch.file("out")));
  expect_finishes(scratch);
}

TEST_F(Durable, TellsAShardThatShrinks) {
  const ScratchDirectory scratch;
  const std::string source = scratch.file("in");
  fs::copy(shared_->file("in"), source, fs::copy_options::recursive);
  const std::string shard = source + "/model-00002-of-00003.safetensors";
  const ProgramResult result = disturbed(
      command(source, scratch.file("out")),
      [&](RunningProgram& run) { return until_under_way(run, scratch); },
      [&] { fs::resize_file(shard, 5000); });
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.error, HasSubstr(shard + ": found "));
  EXPECT_FALSE(fs::exists(scratch.file("out")));
  // The source is another one now, which the next run says.
  fs::copy_file(shared_->file("in/model-00002-of-00003.safetensors"),
                shard,
                fs::copy_options::overwrite_existing);
  const ProgramResult refused =
      run_nibble(command(source, scratch.file("out")));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.error, HasSubstr("another source"));
  EXPECT_THAT(refused.error, HasSubstr("changed since"));
  EXPECT_EQ(run_nibble({"clean", "--yes", scratch.path().string()}).status, 0);
  expect_finishes(scratch);
}

// Weights are mapped, so a page that is gone is a signal, not a failed read.
TEST_F(Durable, TellsAModelThatShrinksWhileItAnswers) {
  const ScratchDirectory scratch;
  const std::string model = scratch.file("model");
  fs::copy(bundled("fable-moe"), model, fs::copy_options::recursive);
  const std::string weights = model + "/model.safetensors";
  RunningProgram run(NIBBLE_PROGRAM, {"chat", model, "--max-tokens", "4"});
  run.write_input("The fox\n");
  ASSERT_TRUE(run.until([&] { return !run.output().empty(); }));
  fs::resize_file(weights, 20'000);
  run.write_input("Once upon a time\n");
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.status, 1) << result.error;
  EXPECT_THAT(result.error,
              HasSubstr("nibble: " + weights +
                        ": found a part of the file "
                        "gone while it was in use"));
  EXPECT_THAT(result.error, HasSubstr("hint: bring the file back"));
}

// A quota or `ulimit -f` is a write error like others, not a signal.
TEST_F(Durable, TellsALimitOnFileSizes) {
  const ScratchDirectory scratch;
  std::string line = "ulimit -f 1000 && exec " NIBBLE_PROGRAM;
  for (const std::string& word : command_here(scratch)) {
    line += " '" + word + "'";
  }
  const ProgramResult result = run_program("/bin/sh", {"-c", line});
  EXPECT_EQ(result.status, 1) << result.error;
  EXPECT_THAT(result.error, HasSubstr("File too large"));
  EXPECT_FALSE(fs::exists(scratch.file("out")));
  expect_finishes(scratch);
}

TEST_F(Durable, ASecondRunAtTheSameOutputIsRefused) {
  const ScratchDirectory scratch;
  RunningProgram first(NIBBLE_PROGRAM, command_here(scratch));
  ASSERT_TRUE(until_under_way(first, scratch));
  first.signal(SIGSTOP);
  const ProgramResult second = run_nibble(command_here(scratch));
  EXPECT_EQ(second.status, 2);
  EXPECT_THAT(second.error, HasSubstr("found another process at work on it"));
  first.signal(SIGCONT);
  EXPECT_EQ(first.wait().status, 0);
  expect_whole(scratch);
}

// ---- nibble clean ----------------------------------------------------------

class Clean : public Durable {
 protected:
  // A partial result as a kill leaves it.
  static void leave_partial(const ScratchDirectory& scratch) {
    RunningProgram run(NIBBLE_PROGRAM, command_here(scratch));
    ASSERT_TRUE(until_under_way(run, scratch));
    run.signal(SIGKILL);
    run.wait();
  }
};

TEST_F(Clean, RemovesWhatAKillLeft) {
  const ScratchDirectory scratch;
  leave_partial(scratch);
  const Json document =
      run_nibble_json({"clean", "--yes", scratch.path().string()});
  EXPECT_GT(document.at("freed_bytes"), 10'000'000);
  EXPECT_EQ(document.at("removed").size(), 1);
  EXPECT_EQ(document.at("removed").at(0).at("path"),
            scratch.file("out.partial"));
  EXPECT_TRUE(document.at("in_use").empty());
  EXPECT_TRUE(fs::is_empty(scratch.path()));
  EXPECT_EQ(
      run_nibble_json({"clean", scratch.path().string()}).at("freed_bytes"), 0);
}

TEST_F(Clean, AsksBeforeItRemoves) {
  const ScratchDirectory scratch;
  leave_partial(scratch);
  for (const bool json : {false, true}) {
    std::vector<std::string> line = {"clean", scratch.path().string()};
    if (json) {
      line.emplace_back("--json");
    }
    const ProgramResult result = run_nibble(line, "y\n");
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.error, HasSubstr("hint: nibble clean --yes"));
  }
  EXPECT_TRUE(fs::exists(scratch.file("out.partial/nibble.journal")));
}

TEST_F(Clean, KeepsWhatARunningProcessHoldsAndWhatIsNotOurs) {
  const ScratchDirectory scratch;
  fs::create_directory(scratch.path() / "download.partial");
  write_content(scratch.file("download.partial/x"), "half a file");
  RunningProgram run(NIBBLE_PROGRAM, command_here(scratch));
  ASSERT_TRUE(until_under_way(run, scratch));
  run.signal(SIGSTOP);
  const ProgramResult result =
      run_nibble({"clean", "--yes", scratch.path().string()});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, HasSubstr("a running process works on it: kept"));
  run.signal(SIGCONT);
  EXPECT_EQ(run.wait().status, 0);
  expect_whole(scratch);
  EXPECT_EQ(content_of(scratch.file("download.partial/x")), "half a file");
}

TEST_F(Clean, RefusesADirectoryThatIsNotThere) {
  const ProgramResult result = run_nibble({"clean", "/nonexistent/folder"});
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.error, HasSubstr("found no such directory"));
}

}  // namespace
}  // namespace nibble
