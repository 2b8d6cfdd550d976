#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace nibble {

// A limit on large allocations, shared by every thread of a job. A thread
// that asks for more than is free waits until others give back.
class MemoryBudget {
 public:
  // RAII share of the budget; movable. Empty after a move.
  class Share {
   public:
    Share() = default;
    Share(MemoryBudget* budget, std::size_t bytes)
        : budget_(budget), bytes_(bytes) {}
    Share(Share&& other) noexcept;
    Share& operator=(Share&& other) noexcept;
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share();

    [[nodiscard]] std::size_t bytes() const { return bytes_; }

   private:
    MemoryBudget* budget_ = nullptr;
    std::size_t bytes_ = 0;
  };

  explicit MemoryBudget(std::size_t limit_bytes) : limit_(limit_bytes) {}

  // Takes bytes, waiting until they are free. Throws kOverBudget at once when
  // bytes exceeds the whole limit. Thread-safe. Never call it while holding a
  // share that others wait for.
  [[nodiscard]] Share acquire(std::size_t bytes);

  [[nodiscard]] std::size_t limit_bytes() const { return limit_; }
  [[nodiscard]] std::size_t used_bytes() const;
  [[nodiscard]] std::size_t peak_bytes() const;

 private:
  void release(std::size_t bytes);

  mutable std::mutex mutex_;
  std::condition_variable freed_;
  std::size_t limit_;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

// Highest resident set size of this process so far, in bytes (VmHWM).
[[nodiscard]] std::size_t peak_resident_bytes();

// Memory that can still be taken without swapping, in bytes: the least of
// MemAvailable and what the control group leaves.
[[nodiscard]] std::size_t available_memory_bytes();

}  // namespace nibble
