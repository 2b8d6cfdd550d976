#include "nibble/store/make.h"

#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "nibble/quant/pipeline/check/verify.h"
#include "nibble/quant/pipeline/tiny_checkpoint.h"
#include "nibble/store/catalogue.h"
#include "nibble/store/lock.h"
#include "nibble/store/remove.h"
#include "temporary_directory.h"

namespace nibble::store {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string recipe_text(int group, const std::string& name = "mine") {
  return R"({"version": 1, "name": ")" + name +
         R"(", "rules": [{"match": "*", "scheme": "int4", "group": )" +
         std::to_string(group) + "}]}";
}

class MakeTest : public ::testing::Test {
 protected:
  MakeTest() { quant::write_tiny(source_); }

  MadeVersion make(const std::string& recipe = recipe_text(32),
                   quant::QuantizeOptions options = {}) {
    const quant::Recipe loaded = quant::load_recipe(recipe);
    return find_or_make(
        store_,
        {.source = source_, .recipe = loaded, .options = std::move(options)},
        null_progress(),
        stop_,
        [this](std::string_view text) { said_.emplace_back(text); });
  }

  // A file's time changes by an hour, as an edit would change it.
  static void touch(const fs::path& file) {
    fs::last_write_time(file,
                        fs::last_write_time(file) + std::chrono::hours(1));
  }

  TemporaryDirectory temporary_;
  fs::path place_ = fs::canonical(temporary_.path());
  fs::path source_ = place_ / "tiny";
  Store store_{place_ / "store"};
  std::atomic<bool> stop_{false};
  std::vector<std::string> said_;
};

TEST_F(MakeTest, SecondCallFindsWhatTheFirstMade) {
  const MadeVersion first = make();
  EXPECT_TRUE(first.made);
  EXPECT_EQ(first.name, "tiny-mine");
  EXPECT_EQ(first.path, store_.version("tiny-mine"));
  EXPECT_TRUE(quant::verify(first.path, source_, null_progress()).ok);
  said_.clear();
  const MadeVersion second = make();
  EXPECT_FALSE(second.made);
  EXPECT_EQ(second.path, first.path);
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(MakeTest, SourceIsTheSameByAnyPath) {
  EXPECT_TRUE(make().made);
  fs::create_directory_symlink(source_, place_ / "link");
  source_ = place_ / "link";
  EXPECT_FALSE(make().made);
}

TEST_F(MakeTest, RenamedRecipeIsAnotherVersion) {
  EXPECT_EQ(make(recipe_text(32, "one")).name, "tiny-one");
  const MadeVersion other = make(recipe_text(32, "two"));
  EXPECT_TRUE(other.made);
  EXPECT_EQ(other.name, "tiny-two");
}

TEST_F(MakeTest, EditedRecipeKeepsTheOldVersionAndGetsASuffix) {
  EXPECT_EQ(make(recipe_text(32)).name, "tiny-mine");
  const MadeVersion edited = make(recipe_text(64));
  EXPECT_TRUE(edited.made);
  EXPECT_THAT(edited.name, StartsWith("tiny-mine-"));
  // Both are found from now on, each by its content.
  EXPECT_EQ(make(recipe_text(32)).name, "tiny-mine");
  const MadeVersion again = make(recipe_text(64));
  EXPECT_FALSE(again.made);
  EXPECT_EQ(again.name, edited.name);
}

TEST_F(MakeTest, RecipeWithoutANameIsNamedByItsContent) {
  const std::string text =
      R"({"version": 1, "rules": [{"match": "*", "scheme": "int8",
          "group": "channel"}]})";
  const std::string name = make(text).name;
  EXPECT_THAT(name, StartsWith("tiny-recipe-"));
  EXPECT_EQ(make(text).name, name);
}

TEST_F(MakeTest, ChangedSourceIsNoHit) {
  const std::string first = make().name;
  touch(source_ / "model.safetensors");
  const MadeVersion changed = make();
  EXPECT_TRUE(changed.made);
  EXPECT_NE(changed.name, first);
}

TEST_F(MakeTest, ChangedSideFileIsNoHit) {
  temporary_.add("tiny/tokenizer.json", "{}");
  EXPECT_TRUE(make().made);
  temporary_.add("tiny/tokenizer.json", "{\"version\": \"1.0\"}");
  EXPECT_TRUE(make().made);
}

TEST_F(MakeTest, NumericsAndShardsArePartOfTheContent) {
  EXPECT_TRUE(make().made);
  quant::QuantizeOptions numerics;
  numerics.numerics = quant::Numerics::kReference;
  EXPECT_TRUE(make(recipe_text(32), numerics).made);
  quant::QuantizeOptions shards;
  shards.shard_bytes = 40'000;
  EXPECT_TRUE(make(recipe_text(32), shards).made);
  EXPECT_EQ(versions(store_).size(), 3U);
  // The limit on memory is not.
  quant::QuantizeOptions memory;
  memory.memory_bytes = 64 << 20;
  EXPECT_FALSE(make(recipe_text(32), memory).made);
}

TEST_F(MakeTest, OverwriteMakesTheVersionAnew) {
  const MadeVersion first = make();
  temporary_.add("store/quantized/tiny-mine/stray", "x");
  quant::QuantizeOptions options;
  options.overwrite = true;
  const MadeVersion anew = make(recipe_text(32), options);
  EXPECT_TRUE(anew.made);
  EXPECT_EQ(anew.path, first.path);
  EXPECT_FALSE(fs::exists(anew.path / "stray"));
}

TEST_F(MakeTest, ForeignDirectoryKeepsItsName) {
  temporary_.add("store/quantized/tiny-mine/notes.txt", "not ours");
  EXPECT_THAT(make().name, StartsWith("tiny-mine-"));
  EXPECT_TRUE(fs::exists(store_.version("tiny-mine") / "notes.txt"));
}

// Throws at the first step of that name.
quant::QuantizeOptions failing_at(const std::string& step) {
  quant::QuantizeOptions options;
  options.before_step = [step](std::string_view now) {
    if (now == step) {
      fail(ErrorCode::kIo, "the disk is full");
    }
  };
  return options;
}

TEST_F(MakeTest, InterruptedWorkGoesOn) {
  expect_error(ErrorCode::kIo, "the disk is full", [&] {
    static_cast<void>(make(recipe_text(32), failing_at("sync")));
  });
  EXPECT_THAT(versions(store_), IsEmpty());
  EXPECT_TRUE(fs::exists(store_.version("tiny-mine.partial")));
  const MadeVersion resumed = make();
  EXPECT_EQ(resumed.name, "tiny-mine");
  EXPECT_GT(resumed.resumed_parts, 0U);
}

TEST_F(MakeTest, InterruptedWorkOfAnotherRecipeStandsInNobodysWay) {
  expect_error(ErrorCode::kIo, "the disk is full", [&] {
    static_cast<void>(make(recipe_text(64), failing_at("sync")));
  });
  EXPECT_THAT(make(recipe_text(32)).name, StartsWith("tiny-mine-"));
  EXPECT_GT(make(recipe_text(64)).resumed_parts, 0U);
}

TEST_F(MakeTest, KilledBeforeTheFirstLineIsNobodysWork) {
  temporary_.add("store/quantized/tiny-mine.partial/nibble.journal", "");
  EXPECT_EQ(make().name, "tiny-mine");
  EXPECT_FALSE(fs::exists(store_.version("tiny-mine.partial")));
}

TEST_F(MakeTest, KilledBeforeTheJournalWentIsFinishedByTheNextCall) {
  expect_error(ErrorCode::kIo, "the disk is full", [&] {
    static_cast<void>(make(recipe_text(32), failing_at("remove journal")));
  });
  ASSERT_TRUE(fs::exists(store_.version("tiny-mine") / "nibble.journal"));
  EXPECT_EQ(make().name, "tiny-mine");
  EXPECT_FALSE(fs::exists(store_.version("tiny-mine") / "nibble.journal"));
  EXPECT_FALSE(make().made);
}

TEST_F(MakeTest, SecondProcessWaitsAndFindsTheResult) {
  // Locks belong to open files, so that a thread stands for a process here.
  const quant::Recipe recipe = quant::load_recipe(recipe_text(32));
  std::promise<void> waiting;
  std::future<MadeVersion> second;
  {
    const Lock lock = Lock::take(store_, "tiny-mine");
    second = std::async(std::launch::async, [&] {
      return find_or_make(store_,
                          {.source = source_, .recipe = recipe},
                          null_progress(),
                          stop_,
                          [&](std::string_view text) {
                            EXPECT_THAT(std::string(text),
                                        HasSubstr("another process"));
                            waiting.set_value();
                          });
    });
    waiting.get_future().get();
    // What the first process makes meanwhile.
    quant::QuantizeOptions options;
    options.output = store_.version("tiny-mine");
    static_cast<void>(quant::quantize(load::open_checkpoint(source_),
                                      recipe,
                                      options,
                                      null_progress(),
                                      stop_));
  }
  EXPECT_FALSE(second.get().made);
}

TEST_F(MakeTest, FindingWritesNothing) {
  EXPECT_TRUE(make().made);
  // A store in which nothing can be created, whoever runs this.
  fs::remove_all(store_.root / "locks");
  temporary_.add("store/locks", "a file, no directory");
  EXPECT_FALSE(make().made);
  expect_error(ErrorCode::kIo, "expected a place to write", [&] {
    static_cast<void>(make(recipe_text(64)));
  });
}

TEST_F(MakeTest, SourceIsNotNeededAgain) {
  EXPECT_TRUE(make().made);
  fs::remove_all(source_);
  EXPECT_TRUE(was_made_from(store_, source_));
  const MadeVersion found = make();
  EXPECT_FALSE(found.made);
  EXPECT_THAT(said_, ::testing::Contains(HasSubstr("is gone")));
  expect_error(ErrorCode::kNotFound, "no such directory", [&] {
    static_cast<void>(make(recipe_text(64)));
  });
}

}  // namespace
}  // namespace nibble::store
