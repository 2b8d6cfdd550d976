#include "nibble/base/ranks/ranks.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "expect_error.h"

namespace nibble {
namespace {

// Processes as threads of this one.
class Table {
 public:
  explicit Table(std::size_t count) : texts_(count) {}

  std::vector<std::string> gather(std::size_t rank, const std::string& text) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !leaving_; });
    texts_[rank] = text;
    ++arrived_;
    if (arrived_ == texts_.size()) {
      leaving_ = true;
    }
    changed_.notify_all();
    changed_.wait(lock, [&] { return leaving_; });
    std::vector<std::string> all = texts_;
    if (--arrived_ == 0) {
      leaving_ = false;
    }
    changed_.notify_all();
    return all;
  }

  [[nodiscard]] int count() const { return static_cast<int>(texts_.size()); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_;
  std::size_t arrived_ = 0;
  bool leaving_ = false;
};

class ThreadRank final : public Ranks {
 public:
  ThreadRank(Table& table, int rank) : table_(table), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }

  [[nodiscard]] int count() const override { return table_.count(); }

  [[nodiscard]] int count_here() const override { return table_.count(); }

  std::vector<std::string> gather(const std::string& text) override {
    return table_.gather(static_cast<std::size_t>(rank_), text);
  }

  void abort(int status) override { std::_Exit(status); }

 private:
  Table& table_;
  int rank_;
};

void in_three(const std::function<void(Ranks&)>& body) {
  Table table(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&table, &body, i] {
      ThreadRank rank(table, i);
      body(rank);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Ranks, OneAloneHearsItself) {
  const auto alone = single_rank();
  EXPECT_EQ(alone->rank(), 0);
  EXPECT_EQ(alone->count(), 1);
  EXPECT_EQ(alone->gather("x"), std::vector<std::string>{"x"});
  expect_error(ErrorCode::kIo, "broken", [&] {
    alone->together([] { fail(ErrorCode::kIo, "broken"); });
  });
  // Nobody has to be told.
  EXPECT_FALSE(alone->failed_together());
}

TEST(Ranks, GoOnTogetherWhenNoneFailed) {
  in_three([](Ranks& ranks) {
    for (int i = 0; i < 100; ++i) {
      ranks.together([] {});
    }
    EXPECT_FALSE(ranks.failed_together());
    EXPECT_EQ(ranks.gather(std::to_string(ranks.rank())),
              (std::vector<std::string>{"0", "1", "2"}));
  });
}

TEST(Ranks, ThrowTheLowestFailureEverywhere) {
  in_three([](Ranks& ranks) {
    expect_error(ErrorCode::kIo, "rank 1: disk 1 is broken\nmend it", [&] {
      ranks.together([&] {
        if (ranks.rank() > 0) {
          fail_with_hint(
              ErrorCode::kIo, "mend it", "disk {} is broken", ranks.rank());
        }
      });
    });
    EXPECT_TRUE(ranks.failed_together());
  });
}

TEST(Ranks, NameNoRankWhenAllSayTheSame) {
  in_three([](Ranks& ranks) {
    try {
      ranks.together([] { fail(ErrorCode::kNotFound, "x: found no file"); });
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "x: found no file");
      EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    }
  });
}

TEST(Ranks, AreOneWhereNoLauncherStartedThem) {
  const std::atomic<bool> stop{false};
  EXPECT_EQ(join_ranks(stop)->count(), 1);
}

}  // namespace
}  // namespace nibble
