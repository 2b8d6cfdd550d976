// What quantize leaves when it is killed, interrupted, limited or loses its
// source, as people meet it: through the program.
#include <nlohmann/json.hpp>

#include "durable_fixture.h"

namespace nibble {
namespace {

using Json = nlohmann::json;

TEST_F(Kills, AtRandomMomentsChangeNoByte) {
  survive_kills(10);
}

TEST_F(Signals, AtRandomMomentsStopCleanly) {
  survive_signals(6);
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
