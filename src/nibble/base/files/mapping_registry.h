#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace nibble {

// A memory range that shows a file's bytes. While it is registered, a handler
// of SIGBUS can name the file: touching a page whose bytes went away (the file
// shrank) or cannot be read (its disk failed) raises that signal.
class MappedRange {
 public:
  MappedRange(const void* data, std::size_t bytes, std::string path);
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;
  ~MappedRange();

  // A place in the registry; never freed, so that a handler may read it.
  struct Slot {
    std::atomic<std::uintptr_t> begin{0};  // 0 = free
    std::atomic<std::uintptr_t> end{0};
    std::atomic<const char*> path{nullptr};
    Slot* next = nullptr;  // set before others see the slot
  };

 private:
  std::string path_;
  Slot* slot_;
};

// The path of the file whose registered range holds address, or nullptr.
// Async-signal-safe; the text lives as long as the range.
[[nodiscard]] const char* mapped_file_at(const void* address) noexcept;

}  // namespace nibble
