#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nibble/cli/screen/session.h"
#include "nibble/cli/shell/complete.h"
#include "nibble/cli/shell/manual.h"
#include "nibble/cli/shell/scripts.h"

namespace nibble::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A parser with a command of each kind.
class Shell : public ::testing::Test {
 protected:
  Shell() : app_("Tests completion", "nibble") {
    add_global_options(app_, session_);
    add_quantize(app_, session_);
    add_generate(app_, session_);
    add_recipes(app_, session_);
    add_verify(app_, session_);
    add_shell_commands(app_, session_);
  }

  std::vector<std::string> words(const std::vector<std::string>& typed) {
    std::vector<std::string> found;
    for (const Candidates::Word& word : candidates(typed).words) {
      found.push_back(word.text);
    }
    return found;
  }

  Candidates candidates(const std::vector<std::string>& typed) {
    const auto names = [] {
      return std::vector<std::string>{"org/model", "model-int4"};
    };
    return complete(app_, typed, names);
  }

  Session session_;
  CLI::App app_;
};

TEST_F(Shell, CommandsThatBeginWithWhatIsTypedAreOffered) {
  EXPECT_THAT(words({"qu"}), ElementsAre("quantize"));
  EXPECT_THAT(words({""}), Contains("generate"));
  EXPECT_THAT(words({""}), Not(Contains("complete")));
}

TEST_F(Shell, OptionsOfTheCommandAndOfTheProgramAreOffered) {
  EXPECT_THAT(words({"quantize", "--rec"}), ElementsAre("--recipe"));
  EXPECT_THAT(words({"quantize", "--thr"}), ElementsAre("--threads"));
  EXPECT_THAT(words({"quantize", "--vers"}), IsEmpty());
}

TEST_F(Shell, NamesOfTheStoreAreOfferedWhereAModelMayStand) {
  EXPECT_THAT(words({"quantize", "org"}), ElementsAre("org/model"));
  EXPECT_THAT(words({"generate", ""}), ElementsAre("org/model", "model-int4"));
  EXPECT_THAT(words({"verify", "model"}), ElementsAre("model-int4"));
  EXPECT_TRUE(candidates({"verify", ""}).directories);
  EXPECT_THAT(words({"quantize", "-o", ""}), IsEmpty());
  EXPECT_THAT(words({"quantize", "m", "--scheme", ""}), IsEmpty());
}

TEST_F(Shell, ValuesOfAnOptionAreOffered) {
  EXPECT_THAT(words({"quantize", "--numerics", ""}),
              ElementsAre("exact", "reference"));
  EXPECT_THAT(words({"quantize", "--numerics", "=", "r"}),
              ElementsAre("reference"));
  EXPECT_THAT(words({"quantize", "x", "--recipe", "int8"}),
              ElementsAre("int8", "int8-w8a8"));
  EXPECT_TRUE(candidates({"quantize", "--recipe", ""}).files);
}

TEST_F(Shell, ArgumentsArePathsOrNames) {
  EXPECT_TRUE(candidates({"quantize", ""}).files);
  EXPECT_FALSE(candidates({"quantize", "m", ""}).files);
  EXPECT_TRUE(candidates({"quantize", "m", "-o", ""}).directories);
  EXPECT_THAT(words({"recipes", "show", "fp8-b"}), ElementsAre("fp8-block"));
  EXPECT_THAT(words({"recipes", "s"}), ElementsAre("show", "schemes"));
}

TEST_F(Shell, EachShellHasAScriptThatAsksTheProgram) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    EXPECT_THAT(std::string(completion_script(shell)),
                HasSubstr(" complete -- "))
        << shell;
  }
}

TEST_F(Shell, TheManualHasEveryCommandAndEscapesWhatTroffWouldRead) {
  const std::string page = manual_page(app_);
  EXPECT_THAT(page, HasSubstr(".TH NIBBLE 1"));
  EXPECT_THAT(page, HasSubstr(".SS nibble recipes check\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-recipe RECIPE\\fR\n"));
  EXPECT_THAT(page, Not(HasSubstr(".SS nibble complete\n")));
  EXPECT_THAT(page, Not(HasSubstr("\n--")));
}

}  // namespace
}  // namespace nibble::cli
