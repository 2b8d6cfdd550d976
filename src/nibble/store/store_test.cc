#include "nibble/store/store.h"

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "nibble/store/catalogue.h"
#include "nibble/store/leftovers.h"
#include "nibble/store/lock.h"
#include "nibble/store/measurements.h"
#include "nibble/store/remove.h"
#include "nibble/store/resolve.h"
#include "temporary_directory.h"

namespace nibble::store {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// An environment in which every place is a temporary directory.
class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    ::setenv("NIBBLE_HOME", store_.root.c_str(), 1);
    ::setenv("HF_HOME", (place_ / "hf").c_str(), 1);
    ::unsetenv("HF_HUB_CACHE");
  }

  // A directory with a receipt; what else a version holds does not matter here.
  void add_version(const std::string& name, const std::string& source) {
    const nlohmann::json receipt = {
        {"source", {{"path", source}}},
        {"recipe", {{"name", "int4"}}},
        {"key", "xxh3:" + name},
        {"bits_per_weight", 4.5},
        {"tensors",
         {{{"layers",
            {{{"scheme", "int4 group 64"}}, nlohmann::json::object()}}},
          {{"layers", {{{"scheme", "fp8 channel"}}}}}}}};
    temporary_.add("store/quantized/" + name + "/nibble.json", receipt.dump());
  }

  TemporaryDirectory temporary_;
  fs::path place_ = fs::canonical(temporary_.path());
  Store store_{place_ / "store"};
};

TEST_F(StoreTest, RootComesFromTheEnvironment) {
  EXPECT_EQ(user_store().root, store_.root);
  ::unsetenv("NIBBLE_HOME");
  ::setenv("XDG_DATA_HOME", place_.c_str(), 1);
  EXPECT_EQ(user_store().root, place_ / "nibble");
  ::setenv("XDG_DATA_HOME", "relative", 1);
  ::setenv("HOME", place_.c_str(), 1);
  EXPECT_EQ(user_store().root, place_ / ".local/share/nibble");
  ::unsetenv("XDG_DATA_HOME");
  ::unsetenv("HOME");
  EXPECT_FALSE(find_user_store());
  expect_error(ErrorCode::kNotFound, "NIBBLE_HOME", [] {
    static_cast<void>(user_store());
  });
}

TEST_F(StoreTest, NamesThatCouldLeadElsewhereAreNone) {
  for (const char* name : {"a", "fable-moe-int4", "Llama-3.1_8B", "7b"}) {
    EXPECT_TRUE(is_version_name(name)) << name;
  }
  for (const char* name : {"",
                           ".",
                           "..",
                           ".hidden",
                           "-x",
                           "a/b",
                           "a b",
                           "a\n",
                           "x.partial",
                           "x.replaced"}) {
    EXPECT_FALSE(is_version_name(name)) << name;
  }
  EXPECT_FALSE(is_version_name(std::string(300, 'a')));
  EXPECT_TRUE(is_hub_id("owner/name"));
  for (const char* id : {"name", "a/b/c", "/b", "a/", "../b", "a/..", "./b"}) {
    EXPECT_FALSE(is_hub_id(id)) << id;
  }
}

TEST_F(StoreTest, ModelPartIsTheLastPartOfAName) {
  EXPECT_EQ(model_part(store_, place_ / "my models" / "fable moe"),
            "fable-moe");
  EXPECT_EQ(model_part(store_, store_.models() / "owner" / "name"), "name");
  EXPECT_EQ(
      model_part(store_, place_ / "hub/models--meta--Llama-3-8B/snapshots/abc"),
      "Llama-3-8B");
  const fs::path file = temporary_.add("checkpoint/model.pth", "x");
  EXPECT_EQ(model_part(store_, file), "checkpoint");
  EXPECT_EQ(name_part("***"), "model");
}

TEST_F(StoreTest, EmptyStoreListsNothingAndWritesNothing) {
  EXPECT_THAT(versions(store_), IsEmpty());
  EXPECT_THAT(models(store_), IsEmpty());
  EXPECT_THAT(names(store_), IsEmpty());
  EXPECT_FALSE(fs::exists(store_.root));
}

TEST_F(StoreTest, CatalogueIsWhatTheDirectoriesSay) {
  add_version("b-int4", "/elsewhere/b");
  add_version("a-int4", "/elsewhere/a");
  temporary_.add("store/quantized/stray/notes.txt", "no receipt");
  temporary_.add("store/quantized/c-int4.partial/nibble.json", "{}");
  temporary_.add("store/quantized/.a.removed-1/nibble.json", "{}");
  temporary_.add("store/models/owner/name/README.md", "12345");
  const std::vector<Version> found = versions(store_);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "a-int4");
  EXPECT_EQ(found[0].source, "/elsewhere/a");
  EXPECT_EQ(found[0].recipe, "int4");
  EXPECT_EQ(found[0].scheme, "fp8 channel; int4 group 64");
  EXPECT_EQ(found[0].created.size(),
            std::string("2026-11-30T13:46:55Z").size());
  const std::vector<SourceModel> sources = models(store_);
  ASSERT_EQ(sources.size(), 1U);
  EXPECT_EQ(sources[0].name, "owner/name");
  EXPECT_EQ(sources[0].bytes, 5U);
  EXPECT_EQ(sources[0].scheme, "");  // no checkpoint, but listed
  EXPECT_THAT(names(store_), ElementsAre("a-int4", "b-int4", "owner/name"));
}

TEST_F(StoreTest, DamagedReceiptHidesNoOtherVersion) {
  add_version("good-int4", "/a");
  temporary_.add("store/quantized/bad-int4/nibble.json", "{\"source\": 3}");
  ASSERT_EQ(versions(store_).size(), 1U);
  EXPECT_EQ(versions(store_)[0].name, "good-int4");
  expect_error(ErrorCode::kCorruptData, "bad-int4", [&] {
    static_cast<void>(find_version(store_, "bad-int4"));
  });
}

TEST_F(StoreTest, ResolvesPathsThenNamesThenTheHubsCache) {
  add_version("a-int4", "/a");
  temporary_.add("store/models/owner/name/config.json", "{}");
  temporary_.add("hf/hub/models--owner--cached/snapshots/abc/config.json",
                 "{}");
  temporary_.add("hf/hub/models--owner--name/snapshots/abc/config.json", "{}");
  EXPECT_EQ(resolve_model(place_.string()), place_);
  EXPECT_EQ(resolve_model("a-int4"), store_.version("a-int4"));
  EXPECT_EQ(resolve_model("owner/name"), store_.models() / "owner/name");
  EXPECT_EQ(resolve_model("owner/cached"),
            place_ / "hf/hub/models--owner--cached/snapshots/abc");
}

TEST_F(StoreTest, HubCacheOfSeveralRevisionsMeansMain) {
  temporary_.add("hf/hub/models--o--n/snapshots/aaa/config.json", "{}");
  temporary_.add("hf/hub/models--o--n/snapshots/bbb/config.json", "{}");
  EXPECT_EQ(cached_snapshot("o/n"), fs::path());  // which of them?
  temporary_.add("hf/hub/models--o--n/refs/main", "bbb\n");
  EXPECT_EQ(cached_snapshot("o/n"),
            place_ / "hf/hub/models--o--n/snapshots/bbb");
  // A reference that leads out of the cache is none.
  temporary_.add("hf/hub/models--o--n/refs/main", "../../../../etc");
  EXPECT_EQ(cached_snapshot("o/n"), fs::path());
}

TEST_F(StoreTest, UnknownNameSuggestsTheNearest) {
  add_version("fable-moe-int4", "/fable-moe");
  const auto hint_of = [](const char* name) {
    try {
      static_cast<void>(resolve_model(name));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotFound);
      EXPECT_THAT(error.what(), HasSubstr("found no such directory"));
      return error.hint();
    }
    return std::string("resolved");
  };
  EXPECT_THAT(hint_of("fable-moe-int"), HasSubstr("fable-moe-int4?"));
  EXPECT_THAT(hint_of("fable-moe"), HasSubstr("fable-moe-int4?"));
  EXPECT_THAT(hint_of("meta/Llama"), HasSubstr("nibble pull meta/Llama"));
  EXPECT_THAT(hint_of("out/model.safetensors"), Not(HasSubstr("nibble pull")));
  EXPECT_THAT(hint_of("quite-another"), HasSubstr("nibble list"));
}

TEST_F(StoreTest, MeasurementsBelongToContentNotToNames) {
  add_version("a-int4", "/a");
  record_measurement(store_,
                     store_.version("a-int4"),
                     {.perplexity = 12.5, .kl = 0.25, .reference = "/a"});
  EXPECT_EQ(versions(store_)[0].perplexity, 12.5);
  EXPECT_EQ(versions(store_)[0].kl, 0.25);
  // A later measurement without a reference keeps the distance.
  record_measurement(store_, store_.version("a-int4"), {.perplexity = 12});
  EXPECT_EQ(versions(store_)[0].perplexity, 12);
  EXPECT_EQ(versions(store_)[0].kl, 0.25);
  EXPECT_EQ(recorded_measurement(store_, "a-int4", "xxh3:other").perplexity,
            std::nullopt);
  // Directories outside are not the store's.
  record_measurement(store_, place_, {.perplexity = 1});
  EXPECT_FALSE(fs::exists(store_.measurements(place_.filename().string())));
}

TEST_F(StoreTest, MeasurementThatCannotBeKeptIsNoError) {
  add_version("a-int4", "/a");
  temporary_.add("store/measurements", "a file, no directory");
  record_measurement(store_, store_.version("a-int4"), {.perplexity = 12});
  EXPECT_EQ(versions(store_)[0].perplexity, std::nullopt);
}

TEST_F(StoreTest, RemovesOneVersionWithItsMeasurement) {
  add_version("a-int4", "/a");
  add_version("a-int8", "/a");
  record_measurement(store_, store_.version("a-int4"), {.perplexity = 12});
  const Removal removal = plan_removal(store_, "a-int4", /*all=*/false);
  EXPECT_THAT(removal.names, ElementsAre("a-int4"));
  EXPECT_EQ(removal.bytes,
            fs::file_size(store_.version("a-int4") / "nibble.json"));
  remove(store_, removal);
  EXPECT_FALSE(fs::exists(store_.measurements("a-int4")));
  EXPECT_THAT(names(store_), ElementsAre("a-int8"));
}

TEST_F(StoreTest, RemovesAllOfAModelButNoSourceOutside) {
  const fs::path source = temporary_.add("a/config.json", "{}").parent_path();
  add_version("a-int4", fs::canonical(source));
  add_version("a-int8", fs::canonical(source));
  add_version("b-int4", "/b");
  for (const std::string& name : {source.string(), std::string("a-int8")}) {
    EXPECT_THAT(plan_removal(store_, name, /*all=*/true).names,
                ElementsAre("a-int4", "a-int8"));
  }
  remove(store_, plan_removal(store_, "a-int8", /*all=*/true));
  EXPECT_TRUE(fs::exists(source / "config.json"));
  EXPECT_THAT(names(store_), ElementsAre("b-int4"));
}

TEST_F(StoreTest, RemovesADownloadWithWhatWasMadeFromIt) {
  temporary_.add("store/models/owner/name/config.json", "{}");
  add_version("name-int4", store_.models() / "owner/name");
  EXPECT_THAT(plan_removal(store_, "owner/name", /*all=*/false).names,
              ElementsAre("owner/name"));
  const Removal all = plan_removal(store_, "name-int4", /*all=*/true);
  EXPECT_THAT(all.names, ElementsAre("owner/name", "name-int4"));
  remove(store_, all);
  EXPECT_THAT(names(store_), IsEmpty());
}

TEST_F(StoreTest, RemovesNothingThatIsNotItsOwn) {
  add_version("a-int4", "/a");
  for (const bool all : {false, true}) {
    expect_error(ErrorCode::kNotFound, "found no version or model", [&] {
      static_cast<void>(plan_removal(store_, place_.string(), all));
    });
    expect_error(ErrorCode::kNotFound, "found no version or model", [&] {
      static_cast<void>(plan_removal(store_, "../store", all));
    });
  }
}

TEST_F(StoreTest, RemovalWaitsForNoOtherProcess) {
  add_version("a-int4", "/a");
  const Lock lock = Lock::take(store_, "a-int4");
  expect_error(ErrorCode::kInvalidArgument, "another process", [&] {
    remove(store_, plan_removal(store_, "a-int4", /*all=*/false));
  });
  EXPECT_THAT(names(store_), ElementsAre("a-int4"));
}

TEST_F(StoreTest, LeftoversAreFoundAndRemoved) {
  temporary_.add("store/quantized/.a-int4.removed-17/model.safetensors", "123");
  temporary_.add("store/models/owner/.name.removed-17/config.json", "{}");
  temporary_.add("store/models/owner/name.partial/config.json", "{}");
  temporary_.add("store/models/owner/name/config.json", "{}");
  add_version("a-int4", "/a");
  const std::vector<Leftover> found = find_leftovers(store_);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].what, "removed model");
  EXPECT_EQ(found[1].what, "download of owner/name");
  EXPECT_EQ(found[2].what, "removed version");
  EXPECT_EQ(found[2].bytes, 3U);
  for (const Leftover& leftover : found) {
    EXPECT_FALSE(leftover.in_use);
    EXPECT_TRUE(remove_leftover(store_, leftover));
  }
  EXPECT_THAT(find_leftovers(store_), IsEmpty());
  EXPECT_THAT(names(store_), ElementsAre("a-int4", "owner/name"));
}

TEST_F(StoreTest, DownloadThatRunsIsNoLeftover) {
  temporary_.add("store/models/owner/name.partial/config.json", "{}");
  const Lock lock = Lock::take(store_, "owner/name");
  const std::vector<Leftover> found = find_leftovers(store_);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].in_use);
  EXPECT_FALSE(remove_leftover(store_, found[0]));
  EXPECT_TRUE(fs::exists(found[0].path));
}

}  // namespace
}  // namespace nibble::store
