// What packages install: the manual page, completions as the shells run them,
// recipes, and the program from another place than the build folder.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

bool exists_in_path(const std::string& program) {
  return run_program("/bin/sh", {"-c", "command -v " + program}).status == 0;
}

// The build installed under a prefix of its own.
class Installed : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = new ScratchDirectory;
    const ProgramResult install = run_program(
        NIBBLE_CMAKE,
        {"--install", NIBBLE_BINARY_DIR, "--prefix", scratch_->file("usr")});
    ASSERT_EQ(install.status, 0) << install.out << install.error;
  }

  static void TearDownTestSuite() {
    delete scratch_;
    scratch_ = nullptr;
  }

  static std::string path(const std::string& name) {
    return scratch_->file("usr/" + name);
  }

  // Runs a line of a shell with the installed program on its path.
  static ProgramResult shell(const std::string& shell,
                             const std::string& script) {
    const char* search = std::getenv("PATH");
    return run_program("/usr/bin/env",
                       {shell, "-c", script},
                       "",
                       {"PATH=" + path("bin") + ":" +
                        (search == nullptr ? "/usr/bin:/bin" : search)});
  }

 private:
  static inline ScratchDirectory* scratch_ = nullptr;
};

TEST_F(Installed, TheProgramRunsFromItsPlace) {
  EXPECT_THAT(run_program(path("bin/nibble"), {"--version"}).out,
              HasSubstr("nibble "));
}

TEST_F(Installed, TheManualPageIsTheProgramsOwn) {
  EXPECT_EQ(content_of(path("share/man/man1/nibble.1")),
            run_nibble({"manual"}).out);
  if (exists_in_path("mandoc")) {
    EXPECT_EQ(run_program("/usr/bin/env",
                          {"mandoc",
                           "-Tlint",
                           "-W",
                           "error",
                           path("share/man/man1/nibble.1")})
                  .status,
              0);
  }
}

TEST_F(Installed, RecipesToStartFromAreThere) {
  for (const auto& entry :
       fs::directory_iterator(fs::path(NIBBLE_SOURCE_DIR) / "recipes")) {
    EXPECT_EQ(content_of(path("share/nibble/recipes/" +
                              entry.path().filename().string())),
              content_of(entry.path()));
  }
}

TEST_F(Installed, BashCompletes) {
  const ProgramResult run =
      shell("bash",
            "source " + path("share/bash-completion/completions/nibble") +
                "\n"
                "ask() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _nibble;"
                " echo \"${COMPREPLY[@]}\"; }\n"
                "ask nibble quan\n"
                "ask nibble quantize --rec\n"
                "ask nibble quantize --recipe int8\n"
                "ask nibble quantize --numerics = r\n"
                "ask nibble inspect models/fable-d\n");
  EXPECT_EQ(run.out,
            "quantize\n--recipe\nint8 int8-w8a8\nreference\n"
            "models/fable-dense\n")
      << run.error;
}

TEST_F(Installed, FishCompletes) {
  if (!exists_in_path("fish")) {
    GTEST_SKIP() << "fish is not installed";
  }
  const ProgramResult run =
      shell("fish",
            "source " + path("share/fish/vendor_completions.d/nibble.fish") +
                "\n"
                "complete -C 'nibble quan'\n"
                "complete -C 'nibble quantize --recipe fp8-b'\n");
  EXPECT_THAT(run.out, HasSubstr("quantize\tWrites a quantized copy"));
  EXPECT_THAT(run.out, HasSubstr("fp8-block\t")) << run.error;
}

TEST_F(Installed, ZshReadsItsScript) {
  if (!exists_in_path("zsh")) {
    GTEST_SKIP() << "zsh is not installed";
  }
  const ProgramResult run =
      shell("zsh",
            "fpath=(" + path("share/zsh/vendor-completions") +
                " $fpath)\n"
                "autoload -U compinit && compinit -u -D\n"
                "print ${_comps[nibble]}\n");
  EXPECT_EQ(run.out, "_nibble\n") << run.error;
}

}  // namespace
}  // namespace nibble
