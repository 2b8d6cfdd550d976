// nibble pull against a hub on this machine, through the program.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/store/hub/fake_hub.h"
#include "program.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using store::hub::FakeHub;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

class PullProgram : public ::testing::Test {
 protected:
  PullProgram() {
    for (const auto& entry : fs::directory_iterator(bundled("fable-dense"))) {
      hub_.add(entry.path().filename().string(),
               content_of(entry.path()),
               entry.path().extension() == ".safetensors");
    }
  }

  ProgramResult run(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& more = {}) {
    std::vector<std::string> environment = {
        "NIBBLE_HOME=" + scratch_.file("store"),
        "HF_HOME=" + scratch_.file("hf"),
        "HF_HUB_CACHE=",
        "HF_TOKEN=",
        "HF_ENDPOINT=" + hub_.endpoint() + "/",
        "NO_PROXY=127.0.0.1"};
    environment.insert(environment.end(), more.begin(), more.end());
    return run_nibble(arguments, "", environment);
  }

  ProgramResult ran(const std::vector<std::string>& arguments) {
    ProgramResult result = run(arguments);
    EXPECT_EQ(result.status, 0) << result.error;
    return result;
  }

  // Expects a refusal that leaves no model behind.
  ProgramResult refused(int status,
                        const std::vector<std::string>& arguments = {
                            "pull", "me/tale"}) {
    ProgramResult result = run(arguments);
    EXPECT_EQ(result.status, status) << result.error;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.error, StartsWith("nibble: "));
    EXPECT_FALSE(fs::exists(model_));
    return result;
  }

  ScratchDirectory scratch_;
  fs::path model_ = fs::canonical(scratch_.path()) / "store/models/me/tale";
  FakeHub hub_;
};

TEST_F(PullProgram, PulledModelRunsByItsName) {
  const Json pulled = Json::parse(ran({"pull", "me/tale", "--json"}).out);
  EXPECT_EQ(pulled.at("path"), model_.string());
  EXPECT_EQ(pulled.at("downloaded"), true);
  EXPECT_GT(pulled.at("bytes").get<std::uint64_t>(), 100'000U);
  EXPECT_EQ(content_of(model_ / "model.safetensors"),
            content_of(bundled("fable-dense") + "/model.safetensors"));
  EXPECT_EQ(ran({"where", "me/tale"}).out, model_.string() + "\n");
  EXPECT_EQ(
      ran({"generate", "me/tale", "--prompt", "Once", "--max-tokens", "4"}).out,
      ran({"generate",
           bundled("fable-dense"),
           "--prompt",
           "Once",
           "--max-tokens",
           "4"})
          .out);
  EXPECT_THAT(ran({"pull", "me/tale"}).out, HasSubstr("there already"));
}

TEST_F(PullProgram, PulledModelIsListedWithItsVersions) {
  ran({"pull", "me/tale"});
  ran({"quantize", "me/tale", "--recipe", "int4"});
  const Json models = Json::parse(ran({"list", "--json"}).out).at("models");
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[0].at("name"), "me/tale");
  EXPECT_EQ(models[0].at("kind"), "source");
  EXPECT_EQ(models[0].at("scheme"), "dense");
  EXPECT_EQ(models[1].at("name"), "tale-int4");
  EXPECT_EQ(models[1].at("source"), "me/tale");
  // The record of the download is no part of the model.
  EXPECT_FALSE(fs::exists(fs::path(scratch_.file("store")) /
                          "quantized/tale-int4/.nibble-pull.json"));
  // The download may go; what was made from it stays usable by the same name.
  ran({"remove", "me/tale", "--yes"});
  EXPECT_THAT(ran({"generate",
                   "me/tale",
                   "--quantize",
                   "int4",
                   "--prompt",
                   "Once",
                   "--max-tokens",
                   "4"})
                  .error,
              HasSubstr("using tale-int4"));
  ran({"remove", "me/tale", "--all", "--yes"});
  EXPECT_EQ(Json::parse(ran({"list", "--json"}).out).at("models").size(), 0U);
}

TEST_F(PullProgram, PatternsChooseFiles) {
  ran({"pull", "me/tale", "--include", "*.json", "--exclude", "tok*"});
  EXPECT_TRUE(fs::exists(model_ / "config.json"));
  EXPECT_FALSE(fs::exists(model_ / "tokenizer.json"));
  EXPECT_FALSE(fs::exists(model_ / "model.safetensors"));
  EXPECT_THAT(run({"pull", "me/tale", "--include", "*.txt"}).error,
              HasSubstr("--include *.txt: found no file"));
}

TEST_F(PullProgram, CutConnectionAndOverloadPass) {
  hub_.fail_next("/cdn/model", {.cut_after = 50'000});
  hub_.fail_next("/api/", {.status = 429, .retry_after = "0"});
  hub_.fail_next("/config.json", {.status = 500, .retry_after = "0"});
  const ProgramResult result = ran({"pull", "me/tale"});
  EXPECT_THAT(result.error, HasSubstr("HTTP status 429; trying again in 0 s"));
  EXPECT_EQ(content_of(model_ / "model.safetensors"),
            content_of(bundled("fable-dense") + "/model.safetensors"));
}

TEST_F(PullProgram, InterruptedPullGoesOn) {
  hub_.fail_next("/cdn/model", {.cut_after = 50'000});
  for (int i = 0; i < 5; ++i) {
    hub_.fail_next("/cdn/model", {.status = 503, .retry_after = "0"});
  }
  EXPECT_THAT(refused(1, {"pull", "me/tale", "--quiet"}).error,
              HasSubstr("hint: the same command goes on from here"));
  ran({"pull", "me/tale"});
  EXPECT_TRUE(hub_.saw_range("bytes=50000-"));
}

TEST_F(PullProgram, WrongLengthIsRefused) {
  hub_.fail_next("/config.json", {.body = "{}" + std::string(5000, ' ')});
  EXPECT_THAT(refused(3).error, HasSubstr("found more than the "));
}

TEST_F(PullProgram, WrongContentIsRefused) {
  const std::size_t size =
      content_of(bundled("fable-dense") + "/config.json").size();
  hub_.fail_next("/config.json", {.body = std::string(size, 'x')});
  EXPECT_THAT(refused(3).error, HasSubstr("expected git-sha1:"));
}

TEST_F(PullProgram, WrongWeightsAreRefused) {
  hub_.fail_next("/cdn/model", {.body = "not what follows"});
  EXPECT_THAT(refused(3).error, HasSubstr("expected sha256:"));
}

TEST_F(PullProgram, EveryRefusalHasItsStatusAndHint) {
  hub_.fail_next("/api/", {.status = 401});
  EXPECT_THAT(refused(3).error, HasSubstr("set HF_TOKEN"));
  hub_.fail_next("/api/", {.status = 403, .error_code = "GatedRepo"});
  EXPECT_THAT(refused(3).error, HasSubstr("accept the model's conditions"));
  hub_.fail_next("/api/", {.status = 404, .error_code = "RevisionNotFound"});
  EXPECT_THAT(refused(3).error, HasSubstr("hint: look at --revision"));
  EXPECT_THAT(refused(3, {"pull", "me/other"}).error,
              HasSubstr("hint: look at the spelling of me/other"));
  EXPECT_THAT(refused(2, {"pull", "tale"}).error, HasSubstr("OWNER/NAME"));
  hub_.fail_next("/api/", {.status = 418});
  EXPECT_THAT(refused(1).error, HasSubstr("HTTP status 418"));
}

TEST_F(PullProgram, HostilePathIsRefused) {
  hub_.set_listing(R"({"sha": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
      "siblings": [{"rfilename": "../../../evil"}]})");
  EXPECT_THAT(refused(3).error, HasSubstr("leaves its directory"));
  EXPECT_FALSE(fs::exists(scratch_.file("store") + "/evil"));
}

TEST_F(PullProgram, TokenComesFromTheEnvironment) {
  hub_.require_token("secret");
  EXPECT_THAT(refused(3).error, HasSubstr("set HF_TOKEN"));
  EXPECT_EQ(run({"pull", "me/tale"}, {"HF_TOKEN=secret"}).status, 0);
}

TEST_F(PullProgram, EndpointThatIsNoneIsWrongUse) {
  const ProgramResult result =
      run({"pull", "me/tale"}, {"HF_ENDPOINT=huggingface.co"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.error, HasSubstr("HF_ENDPOINT"));
}

}  // namespace
}  // namespace nibble
