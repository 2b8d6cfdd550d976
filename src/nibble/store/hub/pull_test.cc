#include "nibble/store/hub/pull.h"

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"
#include "nibble/store/hub/fake_hub.h"
#include "nibble/store/hub/http.h"
#include "temporary_directory.h"

namespace nibble::store::hub {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

TEST(ContentDigest, IsWhatTheCommonToolsPrint) {
  const TemporaryDirectory scratch;
  const ContentDigest sha256{.sha256 = "?"};
  const ContentDigest git{.git_sha1 = "?"};
  // sha256sum; git hash-object.
  EXPECT_EQ(digest_like(sha256, scratch.add("a", "abc")).text(),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f2"
            "0015ad");
  EXPECT_EQ(digest_like(git, scratch.add("b", "hello\n")).text(),
            "git-sha1:ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(digest_like(git, scratch.add("c", "")).text(),
            "git-sha1:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(digest_like({}, scratch.path() / "a").text(), "");
}

TEST(ContentDigest, ReadsTheETagsOfTheHub) {
  const std::string sha1(40, 'a');
  const std::string sha256(64, 'b');
  EXPECT_EQ(digest_of_etag("\"" + sha1 + "\"").git_sha1, sha1);
  EXPECT_EQ(digest_of_etag("\"" + sha256 + "\"").sha256, sha256);
  for (const char* other : {"", "W/\"abc\"", "\"5f3c-2a\"", "\"abc\""}) {
    EXPECT_FALSE(digest_of_etag(other).known()) << other;
  }
}

TEST(UrlEncode, KeepsWhatNeedsNoEscape) {
  EXPECT_EQ(url_encode("refs/pr/1"), "refs%2Fpr%2F1");
  EXPECT_EQ(url_encode("a b/c#?%", "/"), "a%20b/c%23%3F%25");
}

Json listing_of(const std::vector<std::string>& paths) {
  Json siblings = Json::array();
  for (const std::string& path : paths) {
    siblings.push_back({{"rfilename", path}});
  }
  return {{"sha", std::string(40, 'a')}, {"siblings", siblings}};
}

std::vector<std::string> paths_of(const std::vector<RemoteFile>& files) {
  std::vector<std::string> paths;
  for (const RemoteFile& file : files) {
    paths.push_back(file.path);
  }
  return paths;
}

TEST(ParseModel, RefusesHostilePaths) {
  for (const char* path : {"../evil",
                           "/etc/passwd",
                           "a/../../evil",
                           "a//b",
                           "./a",
                           "a/.",
                           "",
                           "..",
                           "a\\b",
                           "a\nb",
                           ".nibble-pull.json",
                           ".nibble-parts/x",
                           "a/"}) {
    SCOPED_TRACE(path);
    expect_error(ErrorCode::kCorruptData, "hub", [&] {
      static_cast<void>(parse_model(listing_of({path}), "the hub"));
    });
  }
  expect_error(ErrorCode::kCorruptData, "a file twice", [] {
    static_cast<void>(parse_model(listing_of({"a", "a"}), "hub"));
  });
  expect_error(ErrorCode::kCorruptData, "a folder, too", [] {
    static_cast<void>(parse_model(listing_of({"a", "a/b"}), "hub"));
  });
}

TEST(ParseModel, RefusesOtherForms) {
  const std::string sha(40, 'a');
  for (const Json& answer :
       {Json(3),
        Json::object(),
        Json{{"sha", "main"}},
        Json{{"sha", sha}},
        Json{{"sha", sha}, {"siblings", Json::array({3})}},
        Json{{"sha", sha}, {"siblings", Json::array({{{"rfilename", 3}}})}}}) {
    expect_error(ErrorCode::kCorruptData, "the hub", [&] {
      static_cast<void>(parse_model(answer, "the hub"));
    });
  }
}

TEST(Choose, LeavesOtherFormsOfTheWeightsOut) {
  const auto files = parse_model(listing_of({"model.safetensors",
                                             "pytorch_model.bin",
                                             "original/consolidated.00.pth",
                                             "original/params.json",
                                             "onnx/model.onnx",
                                             "tokenizer.model",
                                             "config.json"}),
                                 "hub")
                         .files;
  EXPECT_THAT(
      paths_of(choose(files, {}, {})),
      ElementsAre("config.json", "model.safetensors", "tokenizer.model"));
  EXPECT_THAT(paths_of(choose(files, {"original/*"}, {"*.json"})),
              ElementsAre("original/consolidated.00.pth"));
  EXPECT_THAT(paths_of(choose(files, {}, {"*.safetensors"})),
              ElementsAre("config.json", "tokenizer.model"));
  const auto torch =
      parse_model(listing_of({"pytorch_model.bin"}), "hub").files;
  EXPECT_EQ(choose(torch, {}, {}).size(), 1U);
}

TEST(Choose, PatternThatFitsNothingIsAnError) {
  const auto files = parse_model(listing_of({"config.json"}), "hub").files;
  expect_error(ErrorCode::kNotFound, "--include *.txt", [&] {
    static_cast<void>(choose(files, {"*.txt"}, {}));
  });
  expect_error(ErrorCode::kNotFound, "--exclude *.txt", [&] {
    static_cast<void>(choose(files, {}, {"*.txt"}));
  });
  expect_error(ErrorCode::kNotFound, "found no file", [&] {
    static_cast<void>(choose(files, {}, {"*"}));
  });
}

class PullTest : public ::testing::Test {
 protected:
  PullTest() {
    ::setenv("NO_PROXY", "127.0.0.1", 1);
    hub_.add("config.json", R"({"a": 1})");
    hub_.add("empty.txt", "");
    hub_.add("folder/notes.txt", "notes");
    hub_.add("model.safetensors", weights_, /*lfs=*/true);
    options_.id = "me/tale";
    options_.hub.endpoint = hub_.endpoint();
    options_.hub.sleep = [this](seconds wait) { waits_.push_back(wait); };
  }

  PullReport pull_now() {
    return pull(
        store_, options_, null_progress(), stop_, [](std::string_view) {});
  }

  [[nodiscard]] std::string content(const std::string& name) const {
    return read_text_file(target_ / name);
  }

  void expect_failure(ErrorCode code, const std::string& part) {
    expect_error(code, part, [this] { static_cast<void>(pull_now()); });
    EXPECT_FALSE(fs::exists(target_));
  }

  static std::string many_bytes() {
    std::string text;
    for (int i = 0; i < 50'000; ++i) {
      text += std::to_string(i) + "\n";
    }
    return text;
  }

  TemporaryDirectory temporary_;
  Store store_{temporary_.path() / "store"};
  fs::path target_ = store_.models() / "me/tale";
  std::string weights_ = many_bytes();
  FakeHub hub_;
  PullOptions options_;
  std::vector<seconds> waits_;
  std::atomic<bool> stop_{false};
};

TEST_F(PullTest, DownloadsEveryFileAndKeepsARecord) {
  const PullReport report = pull_now();
  EXPECT_TRUE(report.downloaded);
  EXPECT_EQ(report.path, target_);
  EXPECT_EQ(report.files, 4U);
  EXPECT_EQ(report.bytes, 8 + 5 + weights_.size());
  EXPECT_THAT(report.unchecked, IsEmpty());
  EXPECT_EQ(content("model.safetensors"), weights_);
  EXPECT_EQ(content("folder/notes.txt"), "notes");
  EXPECT_EQ(content("empty.txt"), "");
  EXPECT_FALSE(fs::exists(target_ / kPartsFolder));
  EXPECT_FALSE(fs::exists(target_.string() + ".partial"));
  const Json record = read_json_object(target_ / kPullRecord);
  EXPECT_EQ(record.at("commit"), std::string(40, 'a'));
  EXPECT_EQ(record.at("files").size(), 4U);
  EXPECT_EQ(record.at("files").at(0).at("path"), "config.json");
  EXPECT_THAT(record.at("files").at(0).at("digest").get<std::string>(),
              HasSubstr("git-sha1:"));
}

TEST_F(PullTest, SecondPullAsksForTheListAlone) {
  static_cast<void>(pull_now());
  const std::size_t before = hub_.seen().size();
  const PullReport again = pull_now();
  EXPECT_FALSE(again.downloaded);
  EXPECT_EQ(again.bytes, 8 + 5 + weights_.size());
  EXPECT_EQ(hub_.seen().size(), before + 1);
}

TEST_F(PullTest, MissingFileIsLoadedAgain) {
  static_cast<void>(pull_now());
  fs::remove(target_ / "config.json");
  EXPECT_TRUE(pull_now().downloaded);
  EXPECT_EQ(content("config.json"), R"({"a": 1})");
  EXPECT_EQ(hub_.count("resolve/" + std::string(40, 'a') + "/model"), 1U);
}

TEST_F(PullTest, NewRevisionLoadsWhatChanged) {
  static_cast<void>(pull_now());
  hub_.set_commit(std::string(40, 'c'));
  hub_.add("config.json", R"({"a": 2})");
  EXPECT_TRUE(pull_now().downloaded);
  EXPECT_EQ(content("config.json"), R"({"a": 2})");
  EXPECT_EQ(content("model.safetensors"), weights_);
  EXPECT_EQ(hub_.count("/model.safetensors"), 2U);  // once, with redirection
  EXPECT_EQ(read_json_object(target_ / kPullRecord).at("commit"),
            std::string(40, 'c'));
}

TEST_F(PullTest, RevisionIsAskedForByItsName) {
  options_.revision = std::string(40, 'a');
  static_cast<void>(pull_now());
  options_.revision = "refs/pr/1";
  expect_error(ErrorCode::kNotFound, "found no such", [this] {
    static_cast<void>(pull_now());
  });
  EXPECT_EQ(hub_.count("/revision/refs%2Fpr%2F1"), 1U);
}

TEST_F(PullTest, CutConnectionGoesOnWhereItBroke) {
  hub_.fail_next("/cdn/model", {.cut_after = 100'000});
  EXPECT_TRUE(pull_now().downloaded);
  EXPECT_EQ(content("model.safetensors"), weights_);
  std::vector<std::string> ranges;
  for (const auto& seen : hub_.seen()) {
    if (seen.path.find("/cdn/model") != std::string::npos) {
      ranges.push_back(seen.range);
    }
  }
  EXPECT_THAT(ranges, ElementsAre("", "bytes=100000-"));
  EXPECT_THAT(waits_, IsEmpty());  // it went forward
}

TEST_F(PullTest, LaterCallGoesOnWhereAnotherEnded) {
  hub_.fail_next("/cdn/model", {.cut_after = 100'000});
  for (int i = 0; i < 5; ++i) {
    hub_.fail_next("/cdn/model", {.status = 503});
  }
  expect_failure(ErrorCode::kIo, "after 5 attempts");
  EXPECT_TRUE(fs::exists(target_.string() + ".partial"));
  static_cast<void>(pull_now());
  EXPECT_EQ(content("model.safetensors"), weights_);
  EXPECT_TRUE(hub_.saw_range("bytes=100000-"));
}

TEST_F(PullTest, ServerWithoutRangesSendsTheWholeAgain) {
  hub_.fail_next("/cdn/model", {.cut_after = 100'000});
  hub_.fail_next("/cdn/model", {.ignore_range = true});
  static_cast<void>(pull_now());
  EXPECT_EQ(content("model.safetensors"), weights_);
}

TEST_F(PullTest, ErrorsOfTheServerPass) {
  hub_.fail_next("/api/", {.status = 500});
  hub_.fail_next("config.json", {.status = 502});
  hub_.fail_next("config.json", {.status = 503});
  static_cast<void>(pull_now());
  EXPECT_EQ(content("config.json"), R"({"a": 1})");
  EXPECT_THAT(waits_, ElementsAre(seconds(1), seconds(1), seconds(2)));
}

TEST_F(PullTest, OverloadedHubSaysHowLongToWait) {
  hub_.fail_next("/api/", {.status = 429, .retry_after = "17"});
  hub_.fail_next("/api/", {.status = 429, .retry_after = "999999"});
  hub_.fail_next("/api/", {.status = 429, .retry_after = "Mon, 30 Nov"});
  static_cast<void>(pull_now());
  EXPECT_THAT(waits_, ElementsAre(seconds(17), seconds(300), seconds(4)));
}

TEST_F(PullTest, PatienceEnds) {
  for (int i = 0; i < 5; ++i) {
    hub_.fail_next("/api/", {.status = 503});
  }
  expect_failure(ErrorCode::kIo, "HTTP status 503 after 5 attempts");
  EXPECT_EQ(waits_.size(), 4U);
}

TEST_F(PullTest, StopEndsTheWaiting) {
  hub_.fail_next("/api/", {.status = 503});
  options_.hub.sleep = [this](seconds) { stop_.store(true); };
  expect_failure(ErrorCode::kInterrupted, "interrupted");
}

TEST_F(PullTest, HubThatIsNotThereIsAnIoError) {
  options_.hub.endpoint = "http://127.0.0.1:1";
  expect_failure(ErrorCode::kIo, "after 5 attempts");
}

TEST_F(PullTest, WrongContentIsRefusedAndDeleted) {
  std::string wrong = weights_;
  wrong[7] ^= 1;
  hub_.fail_next("/cdn/model", {.body = wrong});
  expect_failure(ErrorCode::kCorruptData, "found sha256:");
  // Not continued: the next call gets the right bytes.
  static_cast<void>(pull_now());
  EXPECT_EQ(content("model.safetensors"), weights_);
}

TEST_F(PullTest, WrongContentOfASmallFileIsRefused) {
  hub_.fail_next("config.json", {.body = R"({"a": 7})"});
  expect_failure(ErrorCode::kCorruptData, "git-sha1:");
}

TEST_F(PullTest, WrongLengthsAreRefused) {
  hub_.fail_next("config.json", {.body = R"({"a": 1}     )"});
  expect_failure(ErrorCode::kCorruptData, "found more than the 8 bytes");
  hub_.fail_next("config.json", {.body = ""});
  expect_failure(ErrorCode::kCorruptData, "expected the 8");
}

TEST_F(PullTest, MissingModelFileAndRevisionAreToldApart) {
  options_.id = "me/other";
  expect_error(ErrorCode::kNotFound, "found no such model", [this] {
    static_cast<void>(pull_now());
  });
  options_.id = "me/tale";
  hub_.fail_next("/api/", {.status = 404, .error_code = "RevisionNotFound"});
  expect_failure(ErrorCode::kNotFound, "found no such revision");
  hub_.fail_next("config.json", {.status = 404, .error_code = "EntryNotFound"});
  expect_failure(ErrorCode::kNotFound, "found no such file");
}

TEST_F(PullTest, PrivateModelsHintAtTheToken) {
  hub_.require_token("secret");
  expect_failure(ErrorCode::kNotFound, "set HF_TOKEN");
  options_.hub.token = "wrong";
  expect_failure(ErrorCode::kNotFound, "look at HF_TOKEN");
  options_.hub.token = "secret";
  EXPECT_TRUE(pull_now().downloaded);
  options_.hub.token = "a\r\nHost: evil";
  expect_error(ErrorCode::kInvalidArgument, "line end", [this] {
    static_cast<void>(pull_now());
  });
}

TEST_F(PullTest, GatedModelsAreExplained) {
  hub_.fail_next("/api/", {.status = 403, .error_code = "GatedRepo"});
  expect_failure(ErrorCode::kNotFound, "accept the model's conditions");
}

TEST_F(PullTest, TokenStaysWithTheHub) {
  // Another host, as a store of large files would be.
  FakeHub elsewhere("me/tale");
  elsewhere.add("model.safetensors", weights_, /*lfs=*/true);
  hub_.fail_next("/resolve/" + std::string(40, 'a') + "/model",
                 {.status = 302,
                  .location = elsewhere.endpoint() + "/cdn/model.safetensors"});
  options_.hub.token = "secret";
  static_cast<void>(pull_now());
  EXPECT_EQ(content("model.safetensors"), weights_);
  ASSERT_EQ(elsewhere.seen().size(), 1U);
  EXPECT_EQ(elsewhere.seen()[0].authorization, "");
  for (const auto& seen : hub_.seen()) {
    EXPECT_EQ(seen.authorization, "Bearer secret") << seen.path;
  }
}

TEST_F(PullTest, RedirectionsEnd) {
  for (int i = 0; i < 20; ++i) {
    hub_.fail_next("/api/", {.status = 302, .location = "/api/again"});
  }
  expect_failure(ErrorCode::kIo, "more than 10 redirections");
}

TEST_F(PullTest, RedirectionToAFileOfThisMachineIsNotFollowed) {
  hub_.fail_next("config.json",
                 {.status = 302, .location = "file:///etc/passwd"});
  expect_failure(ErrorCode::kIo, "redirection to file:");
}

TEST_F(PullTest, HostileNamesWriteNothing) {
  hub_.set_listing(listing_of({"../../evil"}).dump());
  expect_failure(ErrorCode::kCorruptData, "leaves its directory");
  EXPECT_FALSE(fs::exists(store_.root / "evil"));
  hub_.set_listing("<html>");
  expect_failure(ErrorCode::kCorruptData, "me/tale at http://127.0.0.1");
}

TEST_F(PullTest, MirrorWithoutDetailsIsCheckedByETag) {
  hub_.hide_details();
  std::string wrong = weights_;
  wrong[7] ^= 1;
  hub_.fail_next("/cdn/model", {.body = wrong});
  expect_failure(ErrorCode::kCorruptData, "found sha256:");
  EXPECT_THAT(pull_now().unchecked, IsEmpty());
  EXPECT_EQ(content("model.safetensors"), weights_);
}

TEST_F(PullTest, FileWithoutAnyDigestIsNamed) {
  hub_.hide_details();
  hub_.fail_next("config.json", {.without_etag = true});
  EXPECT_THAT(pull_now().unchecked, ElementsAre("config.json"));
}

TEST_F(PullTest, NameThatIsNoneIsWrongUse) {
  for (const char* id : {"tale", "a/b/c", "../x", "me/..", ""}) {
    options_.id = id;
    expect_error(ErrorCode::kInvalidArgument, "OWNER/NAME", [this] {
      static_cast<void>(pull_now());
    });
  }
  options_.id = "me/tale";
  options_.hub.endpoint = "ftp://127.0.0.1";
  expect_error(ErrorCode::kInvalidArgument, "HF_ENDPOINT", [this] {
    static_cast<void>(pull_now());
  });
}

TEST_F(PullTest, StrayFilesOfAnInterruptedRevisionGo) {
  temporary_.add("store/models/me/tale.partial/old.json", "x");
  static_cast<void>(pull_now());
  EXPECT_FALSE(fs::exists(target_ / "old.json"));
}

}  // namespace
}  // namespace nibble::store::hub
