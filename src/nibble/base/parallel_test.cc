#include "nibble/base/parallel.h"

#include <atomic>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "nibble/base/error.h"

namespace nibble {
namespace {

// Restores the default number of threads after a test.
class Parallel : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_thread_count(GetParam()); }

  void TearDown() override { set_thread_count(0); }
};

TEST_P(Parallel, CoversEveryItemOnceInAlignedChunks) {
  for (const std::int64_t count : {0, 1, 6, 7, 8, 1000}) {
    for (const std::int64_t grain : {1, 7, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
        EXPECT_EQ(begin % grain, 0);
        EXPECT_LT(begin, end);
        EXPECT_LE(end - begin, grain);
        for (std::int64_t i = begin; i < end; ++i) {
          ++seen[static_cast<std::size_t>(i)];
        }
      });
      for (const auto& times : seen) {
        EXPECT_EQ(times, 1);
      }
    }
  }
}

TEST_P(Parallel, RethrowsAnErrorOfTheBody) {
  expect_error(ErrorCode::kCorruptData, "item 500", [] {
    parallel_for(1000, 10, [](std::int64_t begin, std::int64_t /*end*/) {
      NIBBLE_CHECK(begin != 500, kCorruptData, "item {}", begin);
    });
  });
}

TEST_P(Parallel, RunsAgainAfterAnError) {
  EXPECT_THROW(parallel_for(8,
                            1,
                            [](std::int64_t /*begin*/, std::int64_t /*end*/) {
                              throw std::runtime_error("x");
                            }),
               std::runtime_error);
  std::atomic<std::int64_t> sum = 0;
  parallel_for(100, 3, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      sum += i;
    }
  });
  EXPECT_EQ(sum, 4950);
}

TEST_P(Parallel, MayBeNested) {
  std::atomic<int> calls = 0;
  parallel_for(10, 1, [&](std::int64_t /*begin*/, std::int64_t /*end*/) {
    parallel_for(
        10, 1, [&](std::int64_t /*begin*/, std::int64_t /*end*/) { ++calls; });
  });
  EXPECT_EQ(calls, 100);
}

INSTANTIATE_TEST_SUITE_P(Threads, Parallel, testing::Values(1, 2, 5));

TEST(ThreadCount, IsWhatWasSetOrAllCores) {
  set_thread_count(3);
  EXPECT_EQ(thread_count(), 3);
  set_thread_count(0);
  EXPECT_GE(thread_count(), 1);
}

TEST(ThreadCount, OneMeansTheCallingThread) {
  set_thread_count(1);
  std::set<std::thread::id> ids;
  parallel_for(50, 1, [&](std::int64_t /*begin*/, std::int64_t /*end*/) {
    ids.insert(std::this_thread::get_id());
  });
  set_thread_count(0);
  EXPECT_EQ(ids, std::set{std::this_thread::get_id()});
}

}  // namespace
}  // namespace nibble
