// The program as scripts see it: exit codes, what goes to which stream, help.
#include "program.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nibble {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

const std::vector<std::string> kCommands = {"quantize",
                                            "generate",
                                            "chat",
                                            "eval",
                                            "logits",
                                            "tokenize",
                                            "template",
                                            "inspect",
                                            "verify",
                                            "report",
                                            "compare",
                                            "recipes",
                                            "clean",
                                            "engines",
                                            "list",
                                            "where",
                                            "remove",
                                            "pull"};

// Runs and expects a refusal: the status, an error line, nothing on stdout.
ProgramResult refused(int status, const std::vector<std::string>& arguments) {
  ProgramResult result = run_nibble(arguments);
  EXPECT_EQ(result.status, status) << result.error;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.error, StartsWith("nibble: "));
  return result;
}

TEST(Help, NoLineIsWiderThanAScreen) {
  for (const std::string& command : kCommands) {
    std::istringstream help(run_nibble({command, "--help"}).out);
    for (std::string line; std::getline(help, line);) {
      EXPECT_LE(line.size(), 100U) << command << ": " << line;
    }
  }
}

TEST(Help, OfTheProgramNamesEveryCommand) {
  const ProgramResult help = run_nibble({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.error, "");
  for (const std::string& command : kCommands) {
    EXPECT_THAT(help.out, HasSubstr("\n  " + command + " "));
  }
}

TEST(Help, OfEachCommandEndsWithAnExample) {
  std::vector<std::vector<std::string>> commands = {
      {"recipes", "show"}, {"recipes", "check"}, {"recipes", "schemes"}};
  for (const std::string& command : kCommands) {
    commands.push_back({command});
  }
  for (std::vector<std::string> line : commands) {
    std::string name = "nibble";
    for (const std::string& word : line) {
      name += " " + word;
    }
    line.emplace_back("--help");
    const ProgramResult help = run_nibble(line);
    EXPECT_EQ(help.status, 0) << name;
    EXPECT_THAT(help.out, HasSubstr("\nExample:\n  " + name + " "));
  }
}

TEST(Help, ExamplesUseOptionsThatExist) {
  for (const std::string& command : kCommands) {
    const std::string help = run_nibble({command, "--help"}).out;
    const std::size_t example = help.find("Example:");
    ASSERT_NE(example, std::string::npos);
    for (std::size_t at = help.find(" --", example); at != std::string::npos;
         at = help.find(" --", at + 1)) {
      const std::size_t end = help.find_first_of(" \n'", at + 3);
      const std::string option = help.substr(at + 1, end - at - 1);
      EXPECT_LT(help.find(option), example) << command << " " << option;
    }
  }
}

TEST(Version, IsOneLine) {
  const ProgramResult version = run_nibble({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out, "nibble " NIBBLE_VERSION "\n");
}

TEST(WrongUse, NoCommand) {
  EXPECT_THAT(refused(2, {}).error, HasSubstr("hint: nibble --help"));
}

TEST(WrongUse, UnknownCommandSuggestsTheNearest) {
  const ProgramResult result = refused(2, {"quantise", "x"});
  EXPECT_THAT(result.error, HasSubstr("found quantise, expected a command"));
  EXPECT_THAT(result.error, HasSubstr("did you mean nibble quantize?"));
}

TEST(WrongUse, UnknownOptionSuggestsTheNearest) {
  const ProgramResult result =
      refused(2, {"generate", "x", "--prompt", "a", "--max-tokns", "3"});
  EXPECT_THAT(result.error, HasSubstr("nibble: generate: found --max-tokns"));
  EXPECT_THAT(result.error, HasSubstr("did you mean --max-tokens?"));
}

TEST(WrongUse, UnknownOptionSuggestsGlobalOnesToo) {
  EXPECT_THAT(refused(2, {"inspect", "x", "--thread=2"}).error,
              HasSubstr("did you mean --threads?"));
}

TEST(WrongUse, MissingArgument) {
  EXPECT_THAT(refused(2, {"inspect"}).error, HasSubstr("required"));
}

TEST(WrongUse, TooManyArguments) {
  EXPECT_THAT(refused(2, {"inspect", "a", "b"}).error,
              HasSubstr("found b after everything"));
}

TEST(WrongUse, ValuesOutOfRange) {
  for (const std::vector<std::string>& line :
       std::vector<std::vector<std::string>>{
           {"inspect", "x", "--threads", "0"},
           {"inspect", "x", "--memory", "12 parsecs"},
           {"generate", "x", "--prompt", "a", "--temperature", "-1"},
           {"generate", "x", "--prompt", "a", "--top-p", "1.5"},
           {"generate", "x", "--prompt", "a", "--max-tokens", "many"},
           {"eval", "x", "--text", "y", "--window", "1"},
           {"quantize", "x", "--recipe", "int4", "--numerics", "fast"},
           {"inspect", "x", "--progress", "loud"},
           {"inspect", "x", "--quiet", "--verbose"}}) {
    refused(2, line);
  }
}

TEST(WrongUse, LayoutsThatCannotBeWrittenYet) {
  const ProgramResult result = refused(2,
                                       {"quantize",
                                        bundled("fable-moe"),
                                        "--recipe",
                                        "int4",
                                        "--layout",
                                        "gguf",
                                        "-o",
                                        "/nonexistent/x"});
  EXPECT_THAT(result.error, HasSubstr("found gguf, expected hf"));
}

TEST(WrongUse, PromptAndIdsExcludeEachOther) {
  refused(2, {"generate", "x", "--prompt", "a", "--ids", "b"});
  refused(2, {"generate", "x"});
  refused(2, {"eval", "x", "--text", "a", "--ids", "b"});
  refused(2, {"eval", "x"});
}

TEST(WrongUse, OutputDirectoryThatIsNotEmpty) {
  const ScratchDirectory scratch;
  write_content(scratch.file("mine.txt"), "precious");
  const ProgramResult result = refused(2,
                                       {"quantize",
                                        bundled("fable-moe"),
                                        "--recipe",
                                        "int4",
                                        "-o",
                                        scratch.path().string()});
  EXPECT_THAT(result.error, HasSubstr("hint: "));
  EXPECT_EQ(content_of(scratch.file("mine.txt")), "precious");
}

TEST(WrongUse, OutputInsideOrEqualToTheSource) {
  refused(2,
          {"quantize",
           bundled("fable-moe"),
           "--recipe",
           "int4",
           "--overwrite",
           "-o",
           bundled("fable-moe")});
  EXPECT_TRUE(fs::exists(bundled("fable-moe") + "/model.safetensors"));
}

TEST(WrongUse, MemoryTooSmall) {
  const ScratchDirectory scratch;
  const ProgramResult result = refused(2,
                                       {"quantize",
                                        bundled("fable-moe"),
                                        "--recipe",
                                        "int4",
                                        "--memory",
                                        "1KiB",
                                        "-o",
                                        scratch.file("out")});
  EXPECT_THAT(result.error, HasSubstr("hint: "));
  EXPECT_FALSE(fs::exists(scratch.file("out")));
}

TEST(WrongUse, TextTooShortForAWindow) {
  const ScratchDirectory scratch;
  write_content(scratch.file("t"), "Once.");
  EXPECT_THAT(
      refused(2, {"eval", bundled("fable-moe"), "--text", scratch.file("t")})
          .error,
      HasSubstr("512"));
}

TEST(BadInput, EveryCommandRefusesAMissingModel) {
  const ScratchDirectory scratch;
  write_content(scratch.file("t"), "text");
  const std::string none = scratch.file("none");
  for (const std::vector<std::string>& line :
       std::vector<std::vector<std::string>>{
           {"quantize", none, "--recipe", "int4", "-o", scratch.file("o")},
           {"generate", none, "--prompt", "a"},
           {"chat", none, "--message", "a"},
           {"eval", none, "--text", scratch.file("t")},
           {"logits", none, "--ids", scratch.file("t"), "-o", "x"},
           {"tokenize", none, "--text", "a"},
           {"template", none, "--messages", scratch.file("t")},
           {"inspect", none},
           {"verify", none},
           {"report", none, "-o", scratch.file("r")},
           {"compare", none, "int4", "--text", scratch.file("t")}}) {
    EXPECT_THAT(refused(3, line).error, HasSubstr("none")) << line[0];
  }
}

TEST(BadInput, TruncatedWeights) {
  const ScratchDirectory scratch;
  const fs::path copy = scratch.path() / "model";
  fs::copy(bundled("fable-moe"), copy);
  fs::resize_file(copy / "model.safetensors", 1000000);
  const ProgramResult result = refused(3,
                                       {"quantize",
                                        copy.string(),
                                        "--recipe",
                                        "int4",
                                        "-o",
                                        scratch.file("out")});
  EXPECT_THAT(result.error, HasSubstr("model.safetensors"));
  EXPECT_FALSE(fs::exists(scratch.file("out")));
}

TEST(BadInput, UnknownRecipeSuggestsTheNearest) {
  const ScratchDirectory scratch;
  EXPECT_THAT(refused(3,
                      {"quantize",
                       bundled("fable-moe"),
                       "--recipe",
                       "int4-asim",
                       "-o",
                       scratch.file("out")})
                  .error,
              HasSubstr("int4-asym"));
}

TEST(BadInput, RecipeKeyThatDoesNotExist) {
  EXPECT_THAT(
      refused(3,
              {"recipes",
               "check",
               R"({"version":1,"rules":[{"match":"*","sceme":"int4"}]})"})
          .error,
      HasSubstr("scheme"));
}

TEST(BadInput, IdsThatAreNoIds) {
  const ScratchDirectory scratch;
  write_content(scratch.file("ids.json"), "[1, 2, 99999999]");
  EXPECT_THAT(
      refused(3,
              {"eval", bundled("fable-moe"), "--ids", scratch.file("ids.json")})
          .error,
      HasSubstr("item 2: found 99999999"));
  write_content(scratch.file("ids.json"), R"({"ids": [1]})");
  refused(3, {"eval", bundled("fable-moe"), "--ids", scratch.file("ids.json")});
}

TEST(Failed, OutputFolderThatCannotBeMade) {
  const ScratchDirectory scratch;
  write_content(scratch.file("file"), "");
  refused(1,
          {"quantize",
           bundled("fable-moe"),
           "--recipe",
           "int4",
           "-o",
           scratch.file("file") + "/below/out"});
}

TEST(Failed, FullStandardOutput) {
  if (!fs::exists("/dev/full")) {
    GTEST_SKIP() << "no /dev/full here";
  }
  const ProgramResult result = run_program(
      "/bin/sh",
      {"-c", std::string("exec '") + NIBBLE_PROGRAM + "' recipes >/dev/full"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.error, HasSubstr("No space left"));
}

TEST(Failed, InterruptionSaysWhatToDo) {
  // The whole text takes far longer than the signal.
  const ProgramResult result = run_program("/usr/bin/timeout",
                                           {"--preserve-status",
                                            "--signal=INT",
                                            "0.5",
                                            NIBBLE_PROGRAM,
                                            "eval",
                                            bundled("fable-moe"),
                                            "--text",
                                            "models/held.txt"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.error, HasSubstr("nibble: interrupted\nhint: "));
}

TEST(Failed, ReaderOfThePipeGoneIsSilent) {
  const std::string program = NIBBLE_PROGRAM;
  const ProgramResult result = run_program(
      "/bin/sh", {"-c", "{ '" + program + "' recipes; echo $? >&2; } | true"});
  // The write may come before true ends; both are right, a signal is not.
  EXPECT_THAT(result.error, ::testing::AnyOf("0\n", "1\n"));
}

TEST(CheckFailed, AByteChangedAfterQuantizing) {
  const ScratchDirectory scratch;
  const std::string out = scratch.file("out");
  ASSERT_EQ(
      run_nibble(
          {"quantize", bundled("fable-moe"), "--recipe", "int4", "-o", out})
          .status,
      0);
  EXPECT_EQ(run_nibble({"verify", out}).status, 0);
  const std::string weights = out + "/model.safetensors";
  std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1000, std::ios::end);
  const char before = static_cast<char>(file.get());
  file.seekp(-1000, std::ios::end);
  file.put(static_cast<char>(before ^ 0x10));
  file.close();
  const ProgramResult result = run_nibble({"verify", out, "--json"});
  EXPECT_EQ(result.status, 4);
  const Json json = Json::parse(result.out);
  EXPECT_FALSE(json.at("ok").get<bool>());
  EXPECT_EQ(json.at("problems").size(), 1U);
}

TEST(Json, IsOneDocumentAndStandardErrorStaysQuiet) {
  const ScratchDirectory scratch;
  const std::string moe = bundled("fable-moe");
  write_content(scratch.file("m.json"),
                R"([{"role": "user", "content": "Hello"}])");
  for (const std::vector<std::string>& line :
       std::vector<std::vector<std::string>>{
           {"generate", moe, "--prompt", "Once", "--max-tokens", "4"},
           {"chat", moe, "--message", "Hello", "--max-tokens", "4"},
           {"eval", moe, "--ids", "tests/data/held-ids.json", "--limit", "1"},
           {"tokenize", moe, "--text", "Once"},
           {"template", moe, "--messages", scratch.file("m.json")},
           {"inspect", moe},
           {"recipes"},
           {"recipes", "schemes"}}) {
    std::vector<std::string> with_json = line;
    with_json.emplace_back("--json");
    with_json.emplace_back("--quiet");
    const ProgramResult result = run_nibble(with_json);
    EXPECT_EQ(result.status, 0) << line[0] << result.error;
    EXPECT_TRUE(Json::accept(result.out)) << line[0] << "\n" << result.out;
    EXPECT_EQ(result.error, "") << line[0];
  }
}

TEST(Json, HasThePromisedKeys) {
  const ScratchDirectory scratch;
  const std::string out = scratch.file("out");
  const std::string moe = bundled("fable-moe");
  const auto expect_keys = [](const Json& json,
                              const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
      EXPECT_TRUE(json.contains(key)) << key << " in " << json.dump();
    }
  };
  expect_keys(run_nibble_json({"quantize", moe, "--recipe", "int8", "-o", out}),
              {"source_bytes",
               "output_bytes",
               "bits_per_weight",
               "seconds",
               "peak_rss_bytes",
               "tensors"});
  const std::vector<std::string> generated = {"text",
                                              "ids",
                                              "prompt_tokens",
                                              "generated_tokens",
                                              "prompt_tokens_per_second",
                                              "generated_tokens_per_second",
                                              "stop_reason"};
  expect_keys(
      run_nibble_json({"generate", out, "--prompt", "A", "--max-tokens=2"}),
      generated);
  expect_keys(
      run_nibble_json({"chat", out, "--message", "A", "--max-tokens=2"}),
      generated);
  expect_keys(run_nibble_json({"eval",
                               out,
                               "--ids",
                               "tests/data/held-ids.json",
                               "--limit=1",
                               "--reference",
                               moe}),
              {"perplexity",
               "nll",
               "windows",
               "tokens",
               "tokens_per_second",
               "peak_rss_bytes",
               "kl_mean",
               "kl_median",
               "kl_p99",
               "top1"});
  const Json inspected = run_nibble_json({"inspect", out});
  expect_keys(inspected,
              {"family",
               "parameters",
               "active_parameters",
               "bytes",
               "bits_per_weight",
               "format",
               "layers"});
  expect_keys(inspected.at("layers").at(0), {"name", "shape", "scheme"});
  const Json verified = run_nibble_json({"verify", out, "--source", moe});
  expect_keys(verified, {"ok", "problems", "layers"});
  expect_keys(verified.at("layers").at(0),
              {"name", "relative_mse", "cosine", "max_abs"});
}

TEST(Options, GlobalOnesStandBeforeOrAfterTheCommand) {
  const std::vector<std::string> tail = {
      "tokenize", bundled("fable-moe"), "--text", "Once"};
  std::vector<std::string> before = {"--threads", "1", "--quiet"};
  before.insert(before.end(), tail.begin(), tail.end());
  std::vector<std::string> after = tail;
  after.insert(after.end(), {"--threads", "1", "--quiet"});
  const ProgramResult a = run_nibble(before);
  const ProgramResult b = run_nibble(after);
  EXPECT_EQ(a.status, 0) << a.error;
  EXPECT_EQ(a.out, b.out);
}

TEST(Options, TheEnvironmentGivesThreadsAndIsChecked) {
  const std::vector<std::string> line = {
      "tokenize", bundled("fable-moe"), "--text", "Once"};
  EXPECT_EQ(run_nibble(line, "", {"NIBBLE_THREADS=1"}).status, 0);
  EXPECT_EQ(run_nibble(line, "", {"NIBBLE_THREADS=none"}).status, 2);
}

TEST(Options, AnUnknownInstructionSetIsRefused) {
  const ProgramResult result = run_nibble(
      {"generate", bundled("fable-moe"), "--prompt", "A", "--max-tokens", "1"},
      "",
      {"NIBBLE_ISA=mmx"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.error, HasSubstr("mmx"));
}

TEST(Tokenize, ThereAndBack) {
  const std::string moe = bundled("fable-moe");
  const Json there = run_nibble_json({"tokenize", moe}, "Once upon a time\n");
  ASSERT_TRUE(there.at("ids").is_array());
  EXPECT_EQ(there.at("text"), "Once upon a time\n");
  const Json back = run_nibble_json(
      {"tokenize", moe, "--decode", "--no-special"}, there.at("ids").dump());
  EXPECT_EQ(back.at("text"), "Once upon a time\n");
}

TEST(Tokenize, LinesGoInAndOutOneByOne) {
  const std::string moe = bundled("fable-moe");
  const ProgramResult ids = run_nibble(
      {"tokenize", moe, "--lines", "--no-special"}, "\"one\\ntwo\"\n\"\"\n");
  ASSERT_EQ(ids.status, 0) << ids.error;
  const std::size_t end = ids.out.find('\n');
  EXPECT_EQ(ids.out.substr(end), "\n[]\n");
  const ProgramResult back =
      run_nibble({"tokenize", moe, "--lines", "--decode"}, ids.out);
  EXPECT_EQ(back.out, "\"one\\ntwo\"\n\"\"\n");
  EXPECT_EQ(run_nibble({"tokenize", moe, "--lines"}, "not json\n").status, 3);
}

TEST(Logits, OneRowATokenOrTheLastAlone) {
  const ScratchDirectory scratch;
  write_content(scratch.file("ids.json"), "[2032, 1581, 323]");
  const Json all = run_nibble_json({"logits",
                                    bundled("fable-moe"),
                                    "--ids",
                                    scratch.file("ids.json"),
                                    "-o",
                                    scratch.file("all.safetensors")});
  EXPECT_EQ(all.at("shape"), Json::parse("[3, 2048]"));
  const Json last = run_nibble_json({"logits",
                                     bundled("fable-moe"),
                                     "--ids",
                                     scratch.file("ids.json"),
                                     "-o",
                                     scratch.file("last.safetensors"),
                                     "--last"});
  EXPECT_EQ(last.at("shape"), Json::parse("[1, 2048]"));
  const std::string a = content_of(scratch.file("all.safetensors"));
  const std::string b = content_of(scratch.file("last.safetensors"));
  EXPECT_EQ(a.substr(a.size() - 2048 * 4), b.substr(b.size() - 2048 * 4));
}

TEST(Generate, TheSameSeedGivesTheSameText) {
  const auto text = [](const std::string& seed) {
    return run_nibble_json({"generate",
                            bundled("fable-dense"),
                            "--prompt",
                            "Once upon a time",
                            "--max-tokens",
                            "24",
                            "--temperature",
                            "1.2",
                            "--seed",
                            seed})
        .at("text");
  };
  EXPECT_EQ(text("7"), text("7"));
  EXPECT_NE(text("7"), text("8"));
}

TEST(Generate, StopsAtAStopTextAndDoesNotShowIt) {
  const Json json =
      run_nibble_json({"generate",
                       bundled("fable-moe"),
                       "--prompt",
                       "Once upon a time there was a king who had three"
                       " sons",
                       "--max-tokens",
                       "40",
                       "--temperature",
                       "0",
                       "--stop",
                       " own lands"});
  EXPECT_EQ(json.at("text"), ", and they all three were in their");
  EXPECT_EQ(json.at("stop_reason"), "stop");
}

TEST(Generate, TextGoesToStandardOutputAndFiguresToStandardError) {
  const std::vector<std::string> line = {"generate",
                                         bundled("fable-moe"),
                                         "--prompt",
                                         "Once",
                                         "--max-tokens",
                                         "5",
                                         "--temperature",
                                         "0"};
  const ProgramResult result = run_nibble(line);
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.error, HasSubstr("tokens/s"));
  EXPECT_THAT(result.out, Not(HasSubstr("tokens/s")));
  std::vector<std::string> quiet = line;
  quiet.emplace_back("--quiet");
  const ProgramResult silent = run_nibble(quiet);
  EXPECT_EQ(silent.out, result.out);
  EXPECT_EQ(silent.error, "");
}

TEST(Chat, ReadsMessagesLineByLine) {
  const ProgramResult result = run_nibble({"chat",
                                           bundled("fable-moe"),
                                           "--max-tokens",
                                           "6",
                                           "--temperature",
                                           "0",
                                           "--quiet"},
                                          "The fox sat down.\n\nThen?\n");
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_EQ(result.error, "");
  // Two answers: the empty line is none.
  EXPECT_THAT(result.out, Not(StartsWith("\n")));
  const std::string first = run_nibble({"chat",
                                        bundled("fable-moe"),
                                        "--message",
                                        "The fox sat down.",
                                        "--max-tokens",
                                        "6",
                                        "--temperature",
                                        "0",
                                        "--quiet"})
                                .out;
  EXPECT_THAT(result.out, StartsWith(first));
  EXPECT_GT(result.out.size(), first.size());
}

TEST(Template, PrintsTheTextOfAConversation) {
  const ScratchDirectory scratch;
  write_content(scratch.file("m.json"),
                R"([{"role": "user", "content": "Hello"}])");
  const ProgramResult result = run_nibble(
      {"template", bundled("fable-moe"), "--messages", scratch.file("m.json")});
  EXPECT_EQ(result.out,
            "<|begin_of_text|><|header_start|>user<|header_end|>\n\n"
            "Hello<|eot|><|header_start|>assistant<|header_end|>\n\n");
  EXPECT_THAT(run_nibble({"template",
                          bundled("fable-moe"),
                          "--messages",
                          scratch.file("m.json"),
                          "--no-generation-prompt"})
                  .out,
              ::testing::EndsWith("Hello<|eot|>"));
}

TEST(Recipes, WhatIsShownIsAccepted) {
  const Json list = run_nibble_json({"recipes"});
  ASSERT_GE(list.at("recipes").size(), 9U);
  const ScratchDirectory scratch;
  for (const Json& recipe : list.at("recipes")) {
    const ProgramResult shown =
        run_nibble({"recipes", "show", recipe.at("name")});
    EXPECT_EQ(shown.status, 0);
    write_content(scratch.file("recipe.json"), shown.out);
    const ProgramResult checked =
        run_nibble({"recipes", "check", scratch.file("recipe.json")});
    EXPECT_EQ(checked.status, 0) << recipe << checked.error;
  }
}

TEST(Recipes, CheckAgainstAModelFindsADeadRule) {
  EXPECT_THAT(refused(3,
                      {"recipes",
                       "check",
                       R"({"version":1,"rules":[)"
                       R"({"match":"*.w9","scheme":"int8"},)"
                       R"({"match":"*","scheme":"int4"}]})",
                       "--model",
                       bundled("fable-moe")})
                  .error,
              HasSubstr("*.w9"));
}

TEST(Quantize, DryRunWritesNothing) {
  const ScratchDirectory scratch;
  const Json plan = run_nibble_json({"quantize",
                                     bundled("fable-moe"),
                                     "--recipe",
                                     "int4",
                                     "-o",
                                     scratch.file("out"),
                                     "--dry-run"});
  EXPECT_TRUE(plan.contains("bits_per_weight")) << plan.dump();
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(Quantize, PlainProgressIsALineOnStandardError) {
  const ScratchDirectory scratch;
  const ProgramResult result = run_nibble({"quantize",
                                           bundled("fable-moe"),
                                           "--recipe",
                                           "int4",
                                           "-o",
                                           scratch.file("out"),
                                           "--progress",
                                           "plain"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.error, HasSubstr("quantizing"));
  EXPECT_THAT(result.error, Not(HasSubstr("\033")));
  EXPECT_THAT(result.out, Not(HasSubstr("quantizing ")));
}

TEST(Generate, IdsNeedNoTokenizer) {
  const ScratchDirectory scratch;
  const std::string model = scratch.file("model");
  fs::create_directory(model);
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::copy_file(fs::path(bundled("fable-moe")) / name,
                  fs::path(model) / name);
  }
  const std::string ids = scratch.file("ids.json");
  write_content(ids, "[5, 6, 7]");
  const auto arguments = [&](const std::string& of) {
    return std::vector<std::string>{"generate",
                                    of,
                                    "--ids",
                                    ids,
                                    "--max-tokens",
                                    "8",
                                    "--temperature",
                                    "0"};
  };
  const Json without = run_nibble_json(arguments(model));
  const Json with = run_nibble_json(arguments(bundled("fable-moe")));
  EXPECT_EQ(without.at("ids"), with.at("ids"));
  EXPECT_EQ(without.at("text"), "");
  EXPECT_EQ(Json::parse(run_nibble(arguments(model)).out), with.at("ids"));
  // A text to stop at wants text.
  std::vector<std::string> stopping = arguments(model);
  stopping.insert(stopping.end(), {"--stop", "x"});
  refused(3, stopping);
}

}  // namespace
}  // namespace nibble
