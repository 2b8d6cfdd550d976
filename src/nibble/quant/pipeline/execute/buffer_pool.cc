#include "nibble/quant/pipeline/execute/buffer_pool.h"

#include <algorithm>
#include <sys/mman.h>
#include <utility>

namespace nibble::quant {
namespace {

constexpr std::size_t kLineBytes = 64;
// Capacities in steps, so that tiles of nearly equal size share buffers.
constexpr std::size_t kStepBytes = 64 << 10;
constexpr std::size_t kHugePageBytes = 2 << 20;

// Large buffers use large pages where the system has them: transposing writes
// to thousands of rows in turn, each of which would need a translation.
std::align_val_t alignment_of(std::size_t capacity) {
  return std::align_val_t{capacity >= 2 * kHugePageBytes ? kHugePageBytes
                                                         : kLineBytes};
}

std::byte* allocate(std::size_t capacity) {
  auto* data =
      static_cast<std::byte*>(::operator new(capacity, alignment_of(capacity)));
  if (capacity >= 2 * kHugePageBytes) {
    // Advice only. Whole pages, so that no byte beyond the buffer is resident.
    static_cast<void>(::madvise(
        data, capacity / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE));
  }
  return data;
}

}  // namespace

BufferPool::Buffer::Buffer(Buffer&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      capacity_(std::exchange(other.capacity_, 0)) {}

BufferPool::Buffer& BufferPool::Buffer::operator=(Buffer&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

BufferPool::Buffer::~Buffer() {
  if (pool_ != nullptr) {
    pool_->give_back({data_, capacity_});
  }
}

BufferPool::~BufferPool() {
  while (!unused_.empty()) {
    free_block(0);
  }
}

BufferPool::Buffer BufferPool::take(std::size_t bytes) {
  const std::size_t wanted =
      (std::max<std::size_t>(bytes, 1) + kStepBytes - 1) / kStepBytes *
      kStepBytes;
  const std::scoped_lock lock(mutex_);
  // The smallest that is large enough.
  std::size_t best = unused_.size();
  for (std::size_t i = 0; i < unused_.size(); ++i) {
    if (unused_[i].capacity >= wanted &&
        (best == unused_.size() ||
         unused_[i].capacity < unused_[best].capacity)) {
      best = i;
    }
  }
  Block block;
  if (best != unused_.size()) {
    block = unused_[best];
    unused_.erase(unused_.begin() + static_cast<std::ptrdiff_t>(best));
  } else {
    // None is: those that are there have had their time.
    while (!unused_.empty() && held_ + wanted > keep_) {
      free_block(0);
    }
    block.data = allocate(wanted);
    block.capacity = wanted;
    held_ += wanted;
  }
  Buffer buffer;
  buffer.pool_ = this;
  buffer.data_ = block.data;
  buffer.size_ = bytes;
  buffer.capacity_ = block.capacity;
  return buffer;
}

std::size_t BufferPool::held_bytes() const {
  const std::scoped_lock lock(mutex_);
  return held_;
}

void BufferPool::give_back(Block block) {
  const std::scoped_lock lock(mutex_);
  unused_.push_back(block);
  while (held_ > keep_ && !unused_.empty()) {
    free_block(0);
  }
}

void BufferPool::free_block(std::size_t index) {
  held_ -= unused_[index].capacity;
  ::operator delete(unused_[index].data, alignment_of(unused_[index].capacity));
  unused_.erase(unused_.begin() + static_cast<std::ptrdiff_t>(index));
}

}  // namespace nibble::quant
