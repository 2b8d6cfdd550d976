#pragma once

#include <cstddef>
#include <mutex>
#include <new>
#include <span>
#include <vector>

namespace nibble::quant {

// Memory of tiles that is used again and again: giving 8 MiB back to the
// system and faulting them in anew costs more than encoding them. Thread-safe;
// must outlive its buffers. Not a limit by itself: see MemoryBudget.
class BufferPool {
 public:
  // Uninitialized memory, aligned to 64 bytes; goes back to its pool with the
  // object. Movable; empty after a move.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer();

    [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_}; }

   private:
    friend class BufferPool;

    BufferPool* pool_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
  };

  // Unused memory is freed before used and unused together pass keep_bytes.
  explicit BufferPool(std::size_t keep_bytes) : keep_(keep_bytes) {}

  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool();

  [[nodiscard]] Buffer take(std::size_t bytes);
  // Memory that the pool holds, in use or not.
  [[nodiscard]] std::size_t held_bytes() const;

 private:
  struct Block {
    std::byte* data = nullptr;
    std::size_t capacity = 0;
  };

  void give_back(Block block);
  void free_block(std::size_t index);

  mutable std::mutex mutex_;
  const std::size_t keep_;
  std::size_t held_ = 0;
  std::vector<Block> unused_;
};

}  // namespace nibble::quant
