#include "nibble/base/files/mapping_registry.h"

#include <mutex>
#include <utility>

namespace nibble {
namespace {

// A list that only grows: a handler walks it at any moment, in a thread that
// may have stopped inside the functions below.
std::atomic<MappedRange::Slot*> first_slot{nullptr};
std::mutex claiming;

// A free slot, or a new one, taken for path.
MappedRange::Slot* claim_slot(const char* path) {
  const std::scoped_lock lock(claiming);
  for (MappedRange::Slot* slot = first_slot.load(); slot != nullptr;
       slot = slot->next) {
    if (slot->path.load() == nullptr) {
      slot->path.store(path);
      return slot;
    }
  }
  auto* slot = new MappedRange::Slot;  // NOLINT: lives as long as the process
  slot->path.store(path);
  slot->next = first_slot.load();
  first_slot.store(slot);
  return slot;
}

}  // namespace

MappedRange::MappedRange(const void* data, std::size_t bytes, std::string path)
    : path_(std::move(path)), slot_(claim_slot(path_.c_str())) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  slot_->end.store(begin + bytes);
  slot_->begin.store(begin);
}

MappedRange::~MappedRange() {
  slot_->begin.store(0);
  slot_->end.store(0);
  slot_->path.store(nullptr);
}

const char* mapped_file_at(const void* address) noexcept {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  for (const MappedRange::Slot* slot = first_slot.load(); slot != nullptr;
       slot = slot->next) {
    const std::uintptr_t begin = slot->begin.load();
    // The range of a page that is being touched is alive, so its slot does
    // not change under the reader; others may, and do not match.
    if (begin != 0 && begin <= wanted && wanted < slot->end.load()) {
      return slot->path.load();
    }
  }
  return nullptr;
}

}  // namespace nibble
