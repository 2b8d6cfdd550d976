// The store through the program: list, where, remove, names in every command,
// quantize without -o, --quantize.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <pty.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

const char* const kInt8 =
    R"({"version": 1, "name": "mine", "rules": [{"match": "*",
        "scheme": "int8", "group": "channel"}]})";

class StoreProgram : public ::testing::Test {
 protected:
  ProgramResult run(const std::vector<std::string>& arguments) {
    return run_nibble(arguments, "", environment_);
  }

  // Expects success.
  ProgramResult ran(const std::vector<std::string>& arguments) {
    ProgramResult result = run(arguments);
    EXPECT_EQ(result.status, 0) << result.error;
    return result;
  }

  Json json_of(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    return Json::parse(ran(arguments).out);
  }

  // Expects a refusal.
  ProgramResult refused(int status, const std::vector<std::string>& arguments) {
    ProgramResult result = run(arguments);
    EXPECT_EQ(result.status, status) << result.error;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.error, HasSubstr("nibble: "));
    return result;
  }

  // Runs on a terminal of its own on which answer was typed.
  ProgramResult run_on_terminal(const std::vector<std::string>& arguments,
                                const std::string& answer) {
    int terminal = -1;
    const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    if (child == 0) {
      for (const std::string& entry : environment_) {
        ::putenv(const_cast<char*>(entry.c_str()));  // NOLINT: POSIX's way
      }
      std::vector<const char*> argv = {NIBBLE_PROGRAM};
      for (const std::string& argument : arguments) {
        argv.push_back(argument.c_str());
      }
      argv.push_back(nullptr);
      ::execv(NIBBLE_PROGRAM, const_cast<char**>(argv.data()));  // NOLINT
      ::_exit(127);
    }
    const std::string line = answer + "\n";
    EXPECT_EQ(::write(terminal, line.data(), line.size()),
              static_cast<ssize_t>(line.size()));
    ProgramResult result;
    char buffer[1024];
    for (ssize_t got = 0;
         (got = ::read(terminal, buffer, sizeof buffer)) > 0;) {
      result.out.append(buffer, static_cast<std::size_t>(got));
    }
    ::close(terminal);
    int status = 0;
    ::waitpid(child, &status, 0);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return result;
  }

  [[nodiscard]] fs::path version(const std::string& name) const {
    return fs::canonical(scratch_.path()) / "store/quantized" / name;
  }

  ScratchDirectory scratch_;
  std::vector<std::string> environment_ = {
      "NIBBLE_HOME=" + scratch_.file("store"),
      "HF_HOME=" + scratch_.file("hf"),
      "HF_HUB_CACHE="};
  std::string model_ = bundled("fable-dense");
};

TEST_F(StoreProgram, StartsEmptyAndWritesNothingToSaySo) {
  EXPECT_THAT(ran({"list"}).out, HasSubstr("nothing yet in "));
  EXPECT_EQ(json_of({"list"}).at("models"), Json::array());
  EXPECT_FALSE(fs::exists(scratch_.file("store")));
}

TEST_F(StoreProgram, QuantizeWithoutOutputGoesToTheStoreOnce) {
  const Json made = json_of({"quantize", model_, "--recipe", "int4"});
  EXPECT_EQ(made.at("name"), "fable-dense-int4");
  EXPECT_EQ(made.at("made"), true);
  EXPECT_EQ(made.at("path"), version("fable-dense-int4").string());
  const auto time =
      fs::last_write_time(version("fable-dense-int4") / "nibble.json");

  const Json again = json_of({"quantize", model_, "--recipe", "int4"});
  EXPECT_EQ(again.at("made"), false);
  for (const char* key : {"path",
                          "source_bytes",
                          "output_bytes",
                          "bits_per_weight",
                          "seconds",
                          "peak_rss_bytes",
                          "tensors",
                          "notes"}) {
    EXPECT_EQ(again.at(key), made.at(key)) << key;
  }
  EXPECT_THAT(ran({"quantize", model_, "--recipe", "int4"}).out,
              HasSubstr("in the store already"));
  EXPECT_EQ(fs::last_write_time(version("fable-dense-int4") / "nibble.json"),
            time);
}

TEST_F(StoreProgram, ListShowsWhatWasMadeOfWhat) {
  ran({"quantize", model_, "--recipe", "int4"});
  ran({"quantize", model_, "--recipe", kInt8});
  const Json models = json_of({"list"}).at("models");
  ASSERT_EQ(models.size(), 2U);
  const Json& row = models[0];
  EXPECT_EQ(row.at("name"), "fable-dense-int4");
  EXPECT_EQ(row.at("source"), fs::canonical(model_).string());
  EXPECT_EQ(row.at("recipe"), "int4");
  EXPECT_EQ(row.at("scheme"), "int4 group 128");
  EXPECT_GT(row.at("bytes").get<std::uint64_t>(), 100'000U);
  EXPECT_GT(row.at("bits_per_weight").get<double>(), 4);
  EXPECT_THAT(row.at("created").get<std::string>(),
              ::testing::MatchesRegex("....-..-..T..:..:..Z"));
  EXPECT_TRUE(row.at("perplexity").is_null());
  EXPECT_TRUE(row.at("kl").is_null());
  EXPECT_EQ(models[1].at("name"), "fable-dense-mine");
  const std::string text = ran({"list"}).out;
  EXPECT_THAT(text, HasSubstr("\n  fable-dense-int4 "));
  EXPECT_LT(text.find("models/fable-dense"), text.find("  fable-dense-int4"));
}

TEST_F(StoreProgram, EvalIsRememberedInTheList) {
  ran({"quantize", model_, "--recipe", "int4"});
  const Json scores = json_of({"eval",
                               "fable-dense-int4",
                               "--ids",
                               "tests/data/held-ids.json",
                               "--limit",
                               "1",
                               "--reference",
                               model_});
  const Json row = json_of({"list"}).at("models").at(0);
  EXPECT_EQ(row.at("perplexity"), scores.at("perplexity"));
  EXPECT_EQ(row.at("kl"), scores.at("kl_mean"));
  // Beside the version, not in it: it still is what its receipt says.
  EXPECT_EQ(run({"verify", "fable-dense-int4"}).status, 0);
}

TEST_F(StoreProgram, WherePrintsThePathAlone) {
  ran({"quantize", model_, "--recipe", "int4"});
  const std::string path = version("fable-dense-int4").string();
  EXPECT_EQ(ran({"where", "fable-dense-int4"}).out, path + "\n");
  EXPECT_EQ(json_of({"where", "fable-dense-int4"}), Json({{"path", path}}));
  EXPECT_THAT(refused(3, {"where", "fable-dense-int"}).error,
              HasSubstr("hint: did you mean fable-dense-int4?"));
  EXPECT_THAT(refused(3, {"where", "owner/name"}).error,
              HasSubstr("hint: nibble pull owner/name"));
}

TEST_F(StoreProgram, EveryCommandTakesANameOfTheStore) {
  ran({"quantize", model_, "--recipe", "int4"});
  const std::string name = "fable-dense-int4";
  write_content(scratch_.file("ids.json"), "[1, 2, 3]");
  write_content(scratch_.file("m.json"), R"([{"role":"user","content":"x"}])");
  const std::string ids = scratch_.file("ids.json");
  ran({"generate", name, "--ids", ids, "--max-tokens", "1"});
  ran({"chat", name, "--message", "x", "--max-tokens", "1"});
  ran({"eval",
       name,
       "--text",
       "models/held.txt",
       "--limit",
       "1",
       "--reference",
       name});
  ran({"logits", name, "--ids", ids, "-o", scratch_.file("l.safetensors")});
  ran({"tokenize", name, "--text", "x"});
  ran({"template", name, "--messages", scratch_.file("m.json")});
  ran({"inspect", name});
  ran({"verify", name, "--source", model_});
  ran({"compare", name, "--text", "models/held.txt", "--limit", "1"});
}

TEST_F(StoreProgram, ComparesVersionsOfTheStoreAndKeepsWhatItFound) {
  const std::vector<std::string> compare = {"compare",
                                            model_,
                                            "int8",
                                            "--text",
                                            "models/held.txt",
                                            "--limit",
                                            "1",
                                            "--window",
                                            "64"};
  const Json made = json_of(compare).at("rows").at(1);
  EXPECT_EQ(made.at("path"), version("fable-dense-int8").string());
  EXPECT_GT(made.at("seconds").get<double>(), 0);
  const Json found = json_of(compare).at("rows").at(1);
  EXPECT_EQ(found.at("path"), made.at("path"));
  EXPECT_FALSE(found.contains("seconds"));
  const Json listed = json_of({"list"});
  for (const Json& model : listed.at("models")) {
    if (model.at("name") == "fable-dense-int8") {
      EXPECT_EQ(model.at("kl"), found.at("kl_mean"));
      EXPECT_EQ(model.at("perplexity"), found.at("perplexity"));
      return;
    }
  }
  ADD_FAILURE() << "the version is not listed";
}

TEST_F(StoreProgram, UnknownNamesAreRefusedByEveryCommand) {
  write_content(scratch_.file("m.json"), R"([{"role":"user","content":"x"}])");
  const std::vector<std::vector<std::string>> commands = {
      {"generate", "nothing", "--prompt", "x"},
      {"chat", "nothing", "--message", "x"},
      {"eval", "nothing", "--text", "models/held.txt"},
      {"eval", model_, "--text", "models/held.txt", "--reference", "nothing"},
      {"logits", "nothing", "--ids", "x", "-o", "y"},
      {"tokenize", "nothing", "--text", "x"},
      {"template", "nothing", "--messages", scratch_.file("m.json")},
      {"inspect", "nothing"},
      {"verify", "nothing"},
      {"verify", model_, "--source", "nothing"},
      {"compare", "nothing", "--text", "models/held.txt"},
      {"report", "nothing", "-o", scratch_.file("r.html")},
      {"convert", "nothing", "-o", scratch_.file("c"), "--to", "meta"},
      {"recipes", "check", "int4", "--model", "nothing"},
      {"quantize", "nothing", "--recipe", "int4"},
      {"quantize", "nothing", "--recipe", "int4", "-o", scratch_.file("out")},
      {"quantize", "nothing", "--recipe", "int4", "--dry-run"},
      {"generate", "nothing", "--quantize", "int4", "--prompt", "x"},
  };
  for (const std::vector<std::string>& command : commands) {
    EXPECT_THAT(refused(3, command).error,
                HasSubstr("nothing: found no such directory"))
        << command.front();
  }
}

TEST_F(StoreProgram, HuggingFaceCacheIsUsedInPlace) {
  const fs::path model = fs::path(scratch_.file("hf")) / "hub/models--me--tale";
  fs::create_directories(model / "snapshots/abc123");
  for (const auto& entry : fs::directory_iterator(model_)) {
    fs::create_directories(model / "blobs");
    const fs::path name = entry.path().filename();
    fs::copy_file(entry.path(), model / "blobs" / name);
    fs::create_symlink(fs::path("../../blobs") / name,
                       model / "snapshots/abc123" / name);
  }
  fs::create_directories(model / "refs");
  write_content(model / "refs/main", "abc123");
  EXPECT_EQ(
      ran({"generate", "me/tale", "--prompt", "Once", "--max-tokens", "8"}).out,
      ran({"generate", model_, "--prompt", "Once", "--max-tokens", "8"}).out);
  EXPECT_EQ(json_of({"quantize", "me/tale", "--recipe", "int4"}).at("name"),
            "tale-int4");
  EXPECT_EQ(json_of({"list"}).at("models").at(0).at("source"), "me/tale");
}

TEST_F(StoreProgram, GenerateQuantizesOnceAndSaysWhich) {
  const std::vector<std::string> command = {"generate",
                                            model_,
                                            "--quantize",
                                            "int4",
                                            "--prompt",
                                            "Once upon",
                                            "--max-tokens",
                                            "8"};
  const ProgramResult first = ran(command);
  EXPECT_THAT(first.error, HasSubstr("made and using fable-dense-int4"));
  const ProgramResult second = ran(command);
  EXPECT_THAT(second.error, StartsWith("using fable-dense-int4"));
  EXPECT_EQ(second.out, first.out);
  EXPECT_EQ(ran({"generate",
                 "fable-dense-int4",
                 "--prompt",
                 "Once upon",
                 "--max-tokens",
                 "8"})
                .out,
            first.out);
}

TEST_F(StoreProgram, OtherCommandsQuantizeToo) {
  write_content(scratch_.file("ids.json"), "[1, 2, 3]");
  EXPECT_THAT(ran({"logits",
                   model_,
                   "--quantize",
                   "int8",
                   "--ids",
                   scratch_.file("ids.json"),
                   "-o",
                   scratch_.file("l")})
                  .error,
              HasSubstr("made and using fable-dense-int8"));
  EXPECT_THAT(ran({"chat",
                   model_,
                   "--quantize",
                   "int8",
                   "--message",
                   "x",
                   "--max-tokens",
                   "1"})
                  .error,
              StartsWith("using fable-dense-int8"));
  ran({"eval",
       model_,
       "--quantize",
       "int8",
       "--text",
       "models/held.txt",
       "--limit",
       "1"});
  EXPECT_FALSE(json_of({"list"}).at("models").at(0).at("perplexity").is_null());
}

TEST_F(StoreProgram, QuantizeOptionRefusesWhatItCannotMake) {
  EXPECT_THAT(
      refused(3, {"generate", model_, "--quantize", "int5x", "--prompt", "x"})
          .error,
      HasSubstr("int5x"));
  ran({"quantize", model_, "--recipe", "int4"});
  EXPECT_THAT(refused(3,
                      {"generate",
                       "fable-dense-int4",
                       "--quantize",
                       "int8",
                       "--prompt",
                       "x"})
                  .error,
              HasSubstr("quantized"));
}

TEST_F(StoreProgram, DenseSourceIsNotNeededAgain) {
  const std::string copy = scratch_.file("tale");
  fs::copy(model_, copy);
  const std::vector<std::string> command = {"generate",
                                            copy,
                                            "--quantize",
                                            "int4",
                                            "--prompt",
                                            "Once upon",
                                            "--max-tokens",
                                            "8"};
  const std::string text = ran(command).out;
  fs::remove(copy + "/model.safetensors");
  const ProgramResult without_weights = ran(command);
  EXPECT_EQ(without_weights.out, text);
  EXPECT_THAT(without_weights.error, HasSubstr("is gone"));
  fs::remove_all(copy);
  EXPECT_EQ(ran(command).out, text);
  refused(3, {"generate", copy, "--quantize", "int8", "--prompt", "x"});
}

TEST_F(StoreProgram, RemoveNeedsAYesWithoutATerminal) {
  ran({"quantize", model_, "--recipe", "int4"});
  EXPECT_THAT(refused(2, {"remove", "fable-dense-int4"}).error,
              HasSubstr("expected --yes"));
  EXPECT_TRUE(fs::exists(version("fable-dense-int4")));
  const Json removed = json_of({"remove", "fable-dense-int4", "--yes"});
  EXPECT_EQ(removed.at("removed"), Json::array({"fable-dense-int4"}));
  EXPECT_GT(removed.at("freed_bytes").get<std::uint64_t>(), 100'000U);
  EXPECT_FALSE(fs::exists(version("fable-dense-int4")));
  EXPECT_THAT(refused(3, {"remove", "fable-dense-int4", "--yes"}).error,
              HasSubstr("found no version or model"));
}

TEST_F(StoreProgram, RemoveAsksOnATerminal) {
  ran({"quantize", model_, "--recipe", "int4"});
  const ProgramResult no = run_on_terminal({"remove", "fable-dense-int4"}, "n");
  EXPECT_EQ(no.status, 1);
  EXPECT_THAT(no.out, HasSubstr("remove fable-dense-int4 ("));
  EXPECT_THAT(no.out, HasSubstr("nothing was removed"));
  EXPECT_TRUE(fs::exists(version("fable-dense-int4")));
  EXPECT_EQ(run_on_terminal({"remove", "fable-dense-int4"}, "y").status, 0);
  EXPECT_FALSE(fs::exists(version("fable-dense-int4")));
}

TEST_F(StoreProgram, RemoveAllTakesVersionsAndLeavesTheSource) {
  const std::string copy = scratch_.file("tale");
  fs::copy(model_, copy);
  ran({"quantize", copy, "--recipe", "int4"});
  ran({"quantize", copy, "--recipe", "int8"});
  ran({"quantize", model_, "--recipe", "int4"});
  EXPECT_THAT(refused(3, {"remove", copy, "--yes"}).error,
              HasSubstr("yours to delete"));
  const Json removed = json_of({"remove", copy, "--all", "--yes"});
  EXPECT_EQ(removed.at("removed"), Json::array({"tale-int4", "tale-int8"}));
  EXPECT_TRUE(fs::exists(copy + "/model.safetensors"));
  EXPECT_EQ(json_of({"list"}).at("models").size(), 1U);
}

TEST_F(StoreProgram, TwoProcessesMakeAVersionOnce) {
  const std::vector<std::string> command = {
      "quantize", model_, "--recipe", "int4", "--json"};
  ProgramResult other;
  std::thread thread([&] { other = run(command); });
  const ProgramResult one = run(command);
  thread.join();
  ASSERT_EQ(one.status, 0) << one.error;
  ASSERT_EQ(other.status, 0) << other.error;
  EXPECT_NE(Json::parse(one.out).at("made"), Json::parse(other.out).at("made"));
  EXPECT_EQ(run({"verify", "fable-dense-int4"}).status, 0);
}

TEST_F(StoreProgram, StoreThatCannotBeWrittenIsAnIoError) {
  write_content(scratch_.file("store"), "a file, no directory");
  EXPECT_THAT(refused(1, {"quantize", model_, "--recipe", "int4"}).error,
              HasSubstr("hint: set NIBBLE_HOME"));
  EXPECT_EQ(run({"list"}).status, 0);
}

TEST_F(StoreProgram, CleanLooksIntoTheStore) {
  ran({"quantize", model_, "--recipe", "int4"});
  const fs::path half = version(".x-int4.removed-1");
  fs::create_directories(half);
  write_content(half / "model.safetensors", "12345");
  // Where nothing else is to be cleaned.
  const auto clean = [&](const std::string& options) {
    return run_program("/bin/sh",
                       {"-c",
                        "cd '" + scratch_.path().string() + "' && exec '" +
                            NIBBLE_PROGRAM + "' clean " + options},
                       "",
                       environment_);
  };
  const ProgramResult unasked = clean("");
  EXPECT_EQ(unasked.status, 2);
  EXPECT_THAT(unasked.error, HasSubstr("expected --yes"));
  EXPECT_EQ(Json::parse(clean("--yes --json").out).at("freed_bytes"), 5);
  EXPECT_FALSE(fs::exists(half));
  EXPECT_TRUE(fs::exists(version("fable-dense-int4")));
}

// Killed once it has begun to write, wherever that finds it.
TEST_F(StoreProgram, KilledQuantizationGoesOn) {
  const fs::path partial = version("fable-dense-int4.partial");
  const pid_t child = ::fork();
  if (child == 0) {
    for (const std::string& entry : environment_) {
      ::putenv(const_cast<char*>(entry.c_str()));  // NOLINT: POSIX's way
    }
    ::execl(NIBBLE_PROGRAM,
            NIBBLE_PROGRAM,
            "quantize",
            model_.c_str(),
            "--recipe",
            "int4",
            "--quiet",
            nullptr);
    ::_exit(127);
  }
  while (!fs::exists(partial / "nibble.journal") &&
         !fs::exists(version("fable-dense-int4"))) {
    std::this_thread::yield();
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ran({"quantize", model_, "--recipe", "int4"});
  EXPECT_FALSE(fs::exists(partial));
  EXPECT_EQ(run({"verify", "fable-dense-int4"}).status, 0);
}

}  // namespace
}  // namespace nibble
