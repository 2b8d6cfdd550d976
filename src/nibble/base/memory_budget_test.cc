#include "nibble/base/memory_budget.h"

#include <atomic>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble {
namespace {

TEST(MemoryBudget, CountsSharesAndThePeak) {
  MemoryBudget budget(100);
  {
    const auto first = budget.acquire(60);
    EXPECT_EQ(first.bytes(), 60u);
    const auto second = budget.acquire(40);
    EXPECT_EQ(budget.used_bytes(), 100u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_EQ(budget.peak_bytes(), 100u);
  EXPECT_EQ(budget.limit_bytes(), 100u);
}

TEST(MemoryBudget, AMovedShareGivesBackOnce) {
  MemoryBudget budget(10);
  {
    auto first = budget.acquire(6);
    const MemoryBudget::Share second = std::move(first);
    EXPECT_EQ(budget.used_bytes(), 6u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(MemoryBudget, AssignmentGivesTheOldShareBack) {
  MemoryBudget budget(10);
  auto share = budget.acquire(4);
  share = MemoryBudget::Share();
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(MemoryBudget, RefusesWhatCanNeverFit) {
  MemoryBudget budget(1 << 20);
  expect_error(ErrorCode::kOverBudget, "1.00 MiB, expected at least 2", [&] {
    static_cast<void>(budget.acquire(2 << 20));
  });
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(MemoryBudget, AThreadWaitsUntilAnotherGivesBack) {
  MemoryBudget budget(10);
  auto held = budget.acquire(8);
  std::promise<void> started;
  std::atomic<bool> acquired = false;
  std::thread waiter([&] {
    started.set_value();
    const auto share = budget.acquire(5);
    acquired = true;
  });
  started.get_future().wait();
  EXPECT_FALSE(acquired);
  EXPECT_EQ(budget.used_bytes(), 8u);
  held = MemoryBudget::Share();
  waiter.join();
  EXPECT_TRUE(acquired);
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_EQ(budget.peak_bytes(), 8u);
}

TEST(MemoryBudget, ManyThreadsNeverPassTheLimit) {
  MemoryBudget budget(100);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&budget, i] {
      for (std::size_t round = 0; round < 200; ++round) {
        const auto share = budget.acquire(10 + (i * 13 + round) % 60);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_LE(budget.peak_bytes(), 100u);
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(ResidentMemory, PeakGrowsWithWhatIsTouched) {
  const std::size_t before = peak_resident_bytes();
  const std::vector<char> block(64 << 20, 'x');
  EXPECT_EQ(block[block.size() / 2], 'x');
  EXPECT_GE(peak_resident_bytes(), std::size_t{64} << 20);
  EXPECT_GE(peak_resident_bytes(), before);
}

TEST(AvailableMemory, IsSomething) {
  EXPECT_GT(available_memory_bytes(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace nibble
