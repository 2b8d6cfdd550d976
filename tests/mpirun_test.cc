// One job in several processes that mpirun starts.
#include "mpirun.h"

#include <nlohmann/json.hpp>

#include "durable_fixture.h"

namespace nibble {
namespace {

using Json = nlohmann::json;

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

class Ranks : public Durable {
 protected:
  void SetUp() override {
    if (const std::string missing = mpirun_missing(); !missing.empty()) {
      GTEST_SKIP() << missing;
    }
  }

  static ProgramResult mpirun(int ranks,
                              const std::vector<std::string>& arguments) {
    return run_program("/usr/bin/env", mpirun_line(ranks, arguments));
  }

  // Waits until a job has finished some parts.
  static void begin(RunningProgram& job, const ScratchDirectory& scratch) {
    ASSERT_TRUE(until_under_way(job, scratch)) << job.wait().error;
  }

  // A signal to every process of a job.
  static void signal_all(const RunningProgram& job, int number) {
    const auto ranks = ranks_of(job.id());
    ASSERT_EQ(ranks.size(), 3u);
    for (const auto& [rank, process] : ranks) {
      ::kill(process, number);
    }
  }
};

class RankCounts : public Ranks, public testing::WithParamInterface<int> {};

TEST_P(RankCounts, GiveTheBytesOfOneProcess) {
  const ScratchDirectory scratch;
  std::vector<std::string> line = command_here(scratch);
  line.emplace_back("--json");
  const ProgramResult run = mpirun(GetParam(), line);
  ASSERT_EQ(run.status, 0) << run.error;
  expect_whole(scratch);
  // One document, however many processes.
  const Json document = Json::parse(run.out);
  EXPECT_EQ(document.at("resumed_parts"), 0);
  EXPECT_GT(document.at("peak_rss_bytes"), 0);
}

TEST_P(RankCounts, PrintAPlanOnce) {
  const ScratchDirectory scratch;
  std::vector<std::string> line = command_here(scratch);
  line.insert(line.end(), {"--dry-run", "--json"});
  const ProgramResult run = mpirun(GetParam(), line);
  ASSERT_EQ(run.status, 0) << run.error;
  EXPECT_TRUE(Json::parse(run.out).contains("tensors"));
}

INSTANTIATE_TEST_SUITE_P(Of, RankCounts, testing::Values(1, 3, 8));

TEST_F(Ranks, ALostOneEndsTheJobAndAnotherNumberGoesOn) {
  const ScratchDirectory scratch;
  {
    RunningProgram job("/usr/bin/env", mpirun_line(3, command_here(scratch)));
    begin(job, scratch);
    signal_all(job, SIGSTOP);
    ::kill(ranks_of(job.id()).at(1), SIGKILL);
    EXPECT_NE(job.wait().status, 0);
  }
  EXPECT_FALSE(fs::exists(scratch.file("out")));
  {
    RunningProgram job("/usr/bin/env", mpirun_line(2, command_here(scratch)));
    // Under way at once: by what the first job left.
    ASSERT_TRUE(job.until([&] { return ranks_of(job.id()).size() == 2; }));
    ASSERT_TRUE(job.until(
        [&] { return handles_signal(ranks_of(job.id()).at(0), SIGTERM); }));
    ::kill(ranks_of(job.id()).at(0), SIGKILL);
    EXPECT_NE(job.wait().status, 0);
  }
  std::vector<std::string> line = command_here(scratch);
  line.emplace_back("--json");
  const ProgramResult alone = run_nibble(line);
  ASSERT_EQ(alone.status, 0) << alone.error;
  EXPECT_GT(Json::parse(alone.out).at("resumed_parts"), 0);
  expect_whole(scratch);
}

// What mpirun does on Ctrl-C, a second after it came.
TEST_F(Ranks, StopCleanlyWhenAllAreTerminated) {
  const ScratchDirectory scratch;
  RunningProgram job("/usr/bin/env", mpirun_line(3, command_here(scratch)));
  begin(job, scratch);
  signal_all(job, SIGSTOP);
  signal_all(job, SIGTERM);
  signal_all(job, SIGCONT);
  const ProgramResult result = job.wait();
  EXPECT_NE(result.status, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(occurrences(result.error, "nibble: interrupted"), 1u)
      << result.error;
  EXPECT_THAT(result.error, HasSubstr("same command"));
  EXPECT_FALSE(fs::exists(scratch.file("out")));
  const ProgramResult again = mpirun(8, command_here(scratch));
  ASSERT_EQ(again.status, 0) << again.error;
  expect_whole(scratch);
}

TEST_F(Ranks, TellTheCauseOnce) {
  const ScratchDirectory scratch;
  const std::string shard =
      shared_->file("in/model-00003-of-00003.safetensors");
  RunningProgram job("/usr/bin/env", mpirun_line(3, command_here(scratch)));
  begin(job, scratch);
  signal_all(job, SIGSTOP);
  fs::rename(shard, scratch.file("away"));
  signal_all(job, SIGCONT);
  const ProgramResult result = job.wait();
  fs::rename(scratch.file("away"), shard);
  EXPECT_EQ(result.status, 1) << result.error;
  EXPECT_THAT(result.error, HasSubstr(shard + ": found it gone"));
  EXPECT_FALSE(fs::exists(scratch.file("out")));
  expect_finishes(scratch);
}

TEST_F(Ranks, RefuseWrongInputOnceAndWithItsStatus) {
  const ScratchDirectory scratch;
  const ProgramResult absent =
      mpirun(3, command("/nonexistent/model", scratch.file("out")));
  EXPECT_EQ(absent.status, 3);
  EXPECT_EQ(occurrences(absent.error, "nibble: "), 1u) << absent.error;
  write_content(scratch.file("mine.txt"), "precious");
  const ProgramResult taken =
      mpirun(3, command(shared_->file("in"), scratch.path().string()));
  EXPECT_EQ(taken.status, 2);
  EXPECT_EQ(occurrences(taken.error, "nibble: "), 1u) << taken.error;
  EXPECT_EQ(content_of(scratch.file("mine.txt")), "precious");
}

TEST_F(Ranks, OfASecondJobAtTheSameOutputAreRefused) {
  const ScratchDirectory scratch;
  RunningProgram first(NIBBLE_PROGRAM, command_here(scratch));
  ASSERT_TRUE(until_under_way(first, scratch));
  first.signal(SIGSTOP);
  const ProgramResult second = mpirun(3, command_here(scratch));
  EXPECT_EQ(second.status, 2);
  EXPECT_THAT(second.error, HasSubstr("found another process at work on it"));
  EXPECT_EQ(occurrences(second.error, "nibble: "), 1u) << second.error;
  first.signal(SIGCONT);
  EXPECT_EQ(first.wait().status, 0);
  expect_whole(scratch);
}

// Several that do not see one another would overwrite each other's work.
TEST_F(Ranks, ThatCannotJoinAreRefused) {
  const ScratchDirectory scratch;
  const ProgramResult result =
      run_nibble(command_here(scratch), "", {"OMPI_COMM_WORLD_SIZE=3"});
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.error, HasSubstr("mpirun: found 3 processes"));
  EXPECT_FALSE(fs::exists(scratch.file("out.partial")));
}

}  // namespace
}  // namespace nibble
