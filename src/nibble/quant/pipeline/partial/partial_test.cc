#include "nibble/quant/pipeline/partial/partial.h"

#include <filesystem>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "temporary_directory.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;

const JobKey kKey{"0.1.0", "source digest", "recipe", "plan", "/models/x"};

class PartialResults : public testing::Test {
 protected:
  // A partial result of 100 kB with a side file in a folder.
  fs::path make(const std::string& name) {
    const fs::path path = temporary_.path() / name;
    fs::create_directories(path / "extra");
    static_cast<void>(Journal::open(path, kKey));
    write_file_atomically(path / "model.safetensors",
                          std::string(100'000, 'w'));
    write_file_atomically(path / "extra" / "notes.txt", "x");
    return path;
  }

  TemporaryDirectory temporary_;
};

TEST_F(PartialResults, AreFoundByNameWithTheirSizeAndSource) {
  const fs::path b = make("b.partial");
  const fs::path a = make("a.partial");
  const auto found = find_partials(temporary_.path());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].path, a);
  EXPECT_EQ(found[1].path, b);
  EXPECT_GE(found[0].bytes, 100'000u);
  EXPECT_EQ(found[0].source_path, "/models/x");
  EXPECT_FALSE(found[0].in_use);
  // The result itself may be named, with or without a slash.
  EXPECT_EQ(find_partials(a).size(), 1u);
  EXPECT_EQ(find_partials(a / "").front().path, a);
}

TEST_F(PartialResults, AreNothingElse) {
  const fs::path real = make("real.partial");
  fs::create_directory_symlink(real, temporary_.path() / "link.partial");
  fs::create_directory(temporary_.path() / "empty.partial");
  make("finished");  // another name
  temporary_.add("download.partial/file.bin", "half");
  temporary_.add("foreign.partial/nibble.journal", "some other tool's notes\n");
  temporary_.add("file.partial", "");
  temporary_.add("begun.partial/other", "x");
  temporary_.add("begun.partial/nibble.journal", "");
  const fs::path linked = temporary_.path() / "linked.partial";
  fs::create_directory(linked);
  fs::create_symlink(real / kJournalName, linked / kJournalName);
  const auto found = find_partials(temporary_.path());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].path, real);
  expect_error(ErrorCode::kInvalidArgument, "found no partial result", [&] {
    remove_partial(temporary_.path() / "download.partial");
  });
  expect_error(ErrorCode::kNotFound, "found no such directory", [&] {
    static_cast<void>(find_partials(temporary_.path() / "nowhere"));
  });
}

// A process may die between creating the journal and its first line.
TEST_F(PartialResults, IncludeOneThatHadJustBegun) {
  temporary_.add("new.partial/nibble.journal", "");
  ASSERT_EQ(find_partials(temporary_.path()).size(), 1u);
  EXPECT_TRUE(remove_partial(temporary_.path() / "new.partial"));
  EXPECT_TRUE(fs::is_empty(temporary_.path()));
}

TEST_F(PartialResults, AreRemovedWhole) {
  const fs::path gone = make("gone.partial");
  const fs::path kept = make("kept.partial");
  const fs::path outside = temporary_.add("outside.txt", "precious");
  fs::create_symlink(outside, gone / "link");
  fs::create_directory_symlink(kept, gone / "folder");
  EXPECT_TRUE(remove_partial(gone));
  EXPECT_FALSE(fs::exists(gone));
  EXPECT_TRUE(fs::exists(kept / "extra" / "notes.txt"));
  EXPECT_EQ(read_text_file(outside), "precious");
}

// What a kill leaves of a removal is still removed by the next one.
TEST_F(PartialResults, MayHaveLostFilesBefore) {
  const fs::path path = make("x.partial");
  fs::remove_all(path / "extra");
  fs::remove(path / "model.safetensors");
  EXPECT_TRUE(remove_partial(path));
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(PartialResults, StayWhileSomebodyWorksOnThem) {
  const fs::path path = make("busy.partial");
  {
    const Journal held = Journal::open(path, kKey);
    EXPECT_TRUE(find_partials(temporary_.path()).front().in_use);
    EXPECT_FALSE(remove_partial(path));
    EXPECT_TRUE(fs::exists(path / "model.safetensors"));
  }
  EXPECT_FALSE(find_partials(temporary_.path()).front().in_use);
  EXPECT_TRUE(remove_partial(path));
}

// Several processes may have worked on one, and the first may be gone.
TEST_F(PartialResults, StayWhileAnyOfSeveralProcessesWorksOnThem) {
  const fs::path path = make("busy.partial");
  {
    const Journal third = Journal::open(path, kKey, 3);
    EXPECT_TRUE(find_partials(temporary_.path()).front().in_use);
    EXPECT_FALSE(remove_partial(path));
  }
  EXPECT_TRUE(remove_partial(path));
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(PartialResults, HoldTheClaimsOfAllJournals) {
  const fs::path path = make("x.partial");
  const ItemResult result{"source", {"a", "b"}, {1, 2, 3, 4, 5}};
  for (int number = 0; number < 12; ++number) {
    Journal journal = Journal::open(path, kKey, number);
    journal.append(static_cast<std::size_t>(2 * number), result);
  }
  write_file_atomically(path / "nibble.journal.old", "no journal");
  EXPECT_EQ(journals_in(path).size(), 12u);
  EXPECT_EQ(journals_in(path).front(), path / kJournalName);
  const auto claims = claims_in(path, kKey, 24);
  for (std::size_t i = 0; i < claims.size(); ++i) {
    ASSERT_EQ(claims[i].has_value(), i % 2 == 0);
    if (claims[i]) {
      EXPECT_EQ(claims[i]->output_checksums, result.output_checksums);
      EXPECT_EQ(claims[i]->sums.product, result.sums.product);
    }
  }
  expect_error(ErrorCode::kCorruptData, "expected fewer than 20", [&] {
    static_cast<void>(claims_in(path, kKey, 20));
  });
}

TEST_F(PartialResults, SayWhatAnotherJobDidOtherwise) {
  const fs::path path = make("x.partial");
  const auto refused = [&](JobKey key, const std::string& part) {
    expect_error(ErrorCode::kInvalidArgument,
                 "found the partial result of another " + part,
                 [&] { static_cast<void>(Journal::open(path, key)); });
  };
  JobKey key = kKey;
  key.version = "0.2.0";
  refused(key, "version of nibble: 0.1.0, expected 0.2.0");
  key = kKey;
  key.source = "changed";
  refused(key, "source: /models/x changed since");
  key.source_path = "/models/y";
  refused(key, "source: /models/x, expected /models/y");
  key = kKey;
  key.recipe = "int8";
  refused(key, "recipe");
  key = kKey;
  key.plan = "other shards";
  expect_error(ErrorCode::kInvalidArgument,
               "found the partial result of other options",
               [&] { static_cast<void>(Journal::open(path, key)); });
  expect_error(ErrorCode::kInvalidArgument,
               "nibble clean " + path.string(),
               [&] { static_cast<void>(Journal::open(path, key)); });
  key = kKey;
  key.source_path = "/moved";  // the same files elsewhere
  static_cast<void>(Journal::open(path, key));
}

}  // namespace
}  // namespace nibble::quant
