#include "nibble/base/memory_budget.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include "nibble/base/error.h"
#include "nibble/base/units.h"

namespace nibble {
namespace {

// Value in bytes of a "Name:  123 kB" line of a /proc file; 0 when absent.
std::size_t proc_kilobytes(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (word == name) {
      std::size_t value = 0;
      file >> value;
      return value * 1024;
    }
  }
  return 0;
}

// Number in a one-number file; the largest size_t for "max" or no file.
std::size_t number_in(const char* path) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : std::numeric_limits<std::size_t>::max();
}

}  // namespace

MemoryBudget::Share::Share(Share&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

MemoryBudget::Share& MemoryBudget::Share::operator=(Share&& other) noexcept {
  std::swap(budget_, other.budget_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryBudget::Share::~Share() {
  if (budget_ != nullptr) {
    budget_->release(bytes_);
  }
}

MemoryBudget::Share MemoryBudget::acquire(std::size_t bytes) {
  std::unique_lock lock(mutex_);
  NIBBLE_CHECK(bytes <= limit_,
               kOverBudget,
               "memory limit: found {}, expected at least {} for one step",
               format_size(limit_),
               format_size(bytes));
  freed_.wait(lock, [&] { return bytes <= limit_ - used_; });
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return {this, bytes};
}

std::size_t MemoryBudget::used_bytes() const {
  const std::scoped_lock lock(mutex_);
  return used_;
}

std::size_t MemoryBudget::peak_bytes() const {
  const std::scoped_lock lock(mutex_);
  return peak_;
}

void MemoryBudget::release(std::size_t bytes) {
  {
    const std::scoped_lock lock(mutex_);
    used_ -= bytes;
  }
  freed_.notify_all();
}

std::size_t peak_resident_bytes() {
  const std::size_t peak = proc_kilobytes("/proc/self/status", "VmHWM:");
  if (peak != 0) {
    return peak;
  }
  rusage usage{};  // a root without /proc; counts the parent before exec, too
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

std::size_t available_memory_bytes() {
  std::size_t system = proc_kilobytes("/proc/meminfo", "MemAvailable:");
  if (system == 0) {  // a root without /proc: what nobody uses at all
    system = static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) *
             static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  }
  const std::size_t limit = number_in("/sys/fs/cgroup/memory.max");
  const std::size_t used = number_in("/sys/fs/cgroup/memory.current");
  if (limit == std::numeric_limits<std::size_t>::max() || used > limit) {
    return system;
  }
  return std::min(system, limit - used);
}

}  // namespace nibble
