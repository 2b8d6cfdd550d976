// Runs the terminal session of docs/tutorial.md again: every line after "$ "
// in a console block, in order, against a hub on this machine, and compares
// what is printed. Figures that differ from run to run and from processor to
// processor are masked. NIBBLE_UPDATE_DOCS=1 records the session anew.
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nibble/store/hub/fake_hub.h"
#include "program.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

// Where people type: a home of its own, the program on the path, and a hub
// that serves the bundled model as fable/fable-moe.
class Terminal {
 public:
  Terminal() {
    fs::create_directories(scratch_.file("home"));
    for (const auto& entry : fs::directory_iterator(bundled("fable-moe"))) {
      hub_.add(entry.path().filename().string(),
               content_of(entry.path()),
               entry.path().extension() == ".safetensors");
    }
    fs::copy_file(fs::path(NIBBLE_SOURCE_DIR) / "models/held.txt",
                  scratch_.file("home/held.txt"));
  }

  // What a command line prints; the home's path is shown as people see it.
  std::string type(const std::string& line) {
    const std::string home = scratch_.file("home");
    const ProgramResult result =
        run_program("/bin/sh",
                    {"-c", "cd " + home + " && exec 2>&1\n" + line},
                    "",
                    {"HOME=" + home,
                     "NIBBLE_HOME=" + home + "/.local/share/nibble",
                     "HF_HOME=" + home + "/hf",
                     "HF_HUB_CACHE=",
                     "HF_TOKEN=",
                     "HF_ENDPOINT=" + hub_.endpoint(),
                     "NO_PROXY=127.0.0.1",
                     "PATH=" + fs::path(NIBBLE_PROGRAM).parent_path().string() +
                         ":/usr/bin:/bin"});
    EXPECT_EQ(result.status, 0) << line << "\n" << result.out;
    std::string text = result.out;
    for (std::size_t at = text.find(home); at != std::string::npos;
         at = text.find(home)) {
      text.replace(at, home.size(), "/home/you");
    }
    return text;
  }

 private:
  ScratchDirectory scratch_;
  store::hub::FakeHub hub_{"fable/fable-moe"};
};

// The session with each command's output made anew.
std::string replayed(const std::string& page, int& commands) {
  Terminal terminal;
  std::istringstream lines(page);
  std::string result;
  bool session = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "```console" || line == "```") {
      session = line == "```console";
    }
    const bool command = session && line.starts_with("$ ");
    if (!session || command || line == "```console") {
      result += line + "\n";
    }
    if (command) {
      ++commands;
      std::string whole = line.substr(2);
      while (whole.ends_with("\\")) {  // goes on in the next line
        std::getline(lines, line);
        result += line + "\n";
        whole = whole.substr(0, whole.size() - 1) + line;
      }
      result += terminal.type(whole);
    }
  }
  return result;
}

// Times, speeds and memory, and what rounding of another instruction set may
// change, as one sign.
std::string masked(const std::string& text) {
  static const std::regex kDate(R"(\d{4}-\d{2}-\d{2}( \d{2}:\d{2})?)");
  static const std::regex kFigure(R"( *[0-9]+\.[0-9]+(e-[0-9]+)?)");
  static const std::regex kCount(R"( *[0-9]+ (s\b|ms\b|tokens/s|[KMG]iB))");
  // What a forecast was made from.
  static const std::regex kProbe(R"(with [0-9]+ threads? \(from [^)]*\))");
  std::string result = std::regex_replace(text, kProbe, "#");
  result = std::regex_replace(result, kDate, "#");
  result = std::regex_replace(result, kFigure, " #");
  return std::regex_replace(result, kCount, " # $1");
}

TEST(Tutorial, TheRecordedSessionRunsAgain) {
  const fs::path path = fs::path(NIBBLE_SOURCE_DIR) / "docs/tutorial.md";
  const std::string page = content_of(path);
  int commands = 0;
  const std::string now = replayed(page, commands);
  EXPECT_GE(commands, 8);
  if (std::getenv("NIBBLE_UPDATE_DOCS") != nullptr) {
    write_content(path, now);
    return;
  }
  EXPECT_EQ(masked(page), masked(now))
      << "docs/tutorial.md is out of date: NIBBLE_UPDATE_DOCS=1 rewrites it";
}

}  // namespace
}  // namespace nibble
