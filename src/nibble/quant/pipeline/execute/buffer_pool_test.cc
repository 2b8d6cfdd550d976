#include "nibble/quant/pipeline/execute/buffer_pool.h"

#include <cstdint>
#include <utility>

#include <gtest/gtest.h>

namespace nibble::quant {
namespace {

TEST(BufferPool, UsesMemoryAgain) {
  BufferPool pool(1 << 20);
  const std::byte* first = nullptr;
  {
    const BufferPool::Buffer buffer = pool.take(100'000);
    EXPECT_EQ(buffer.bytes().size(), 100'000u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.bytes().data()) % 64, 0u);
    first = buffer.bytes().data();
  }
  EXPECT_EQ(pool.take(90'000).bytes().data(), first);
  EXPECT_EQ(pool.held_bytes(), 128u << 10);
}

TEST(BufferPool, GivesDifferentMemoryToDifferentHolders) {
  BufferPool pool(1 << 20);
  BufferPool::Buffer a = pool.take(1000);
  const BufferPool::Buffer b = pool.take(1000);
  EXPECT_NE(a.bytes().data(), b.bytes().data());
  const BufferPool::Buffer moved = std::move(a);
  EXPECT_TRUE(a.bytes().empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(moved.bytes().size(), 1000u);
}

TEST(BufferPool, FreesUnusedMemoryRatherThanGrowPastWhatItKeeps) {
  BufferPool pool(300 << 10);
  static_cast<void>(pool.take(128 << 10));
  static_cast<void>(pool.take(192 << 10));
  EXPECT_EQ(pool.held_bytes(), 192u << 10);
  const BufferPool::Buffer large = pool.take(1 << 20);
  EXPECT_EQ(pool.held_bytes(), 1u << 20);
}

TEST(BufferPool, GivesAnEmptyBufferForNothing) {
  BufferPool pool(1 << 20);
  EXPECT_TRUE(pool.take(0).bytes().empty());
}

}  // namespace
}  // namespace nibble::quant
