#include "nibble/quant/pipeline/execute/ordered_digest.h"

#include <utility>

#include "nibble/base/error.h"

namespace nibble::quant {

void OrderedDigest::add(std::uint64_t offset,
                        std::span<const std::byte> bytes,
                        std::shared_ptr<const void> owner) {
  const std::scoped_lock lock(mutex_);
  if (abandoned_) {
    return;
  }
  if (offset != next_) {
    pending_.emplace(offset, Pending{bytes, std::move(owner)});
    return;
  }
  hasher_.update(bytes);
  next_ += bytes.size();
  for (auto first = pending_.begin();
       first != pending_.end() && first->first == next_;
       first = pending_.erase(first)) {
    hasher_.update(first->second.bytes);
    next_ += first->second.bytes.size();
  }
}

void OrderedDigest::abandon() {
  const std::scoped_lock lock(mutex_);
  abandoned_ = true;
  pending_.clear();
}

std::string OrderedDigest::digest(std::uint64_t total_bytes) const {
  const std::scoped_lock lock(mutex_);
  NIBBLE_CHECK(next_ == total_bytes && pending_.empty(),
               kInternal,
               "digest: found {} bytes without a gap, expected {}",
               next_,
               total_bytes);
  return hasher_.digest();
}

}  // namespace nibble::quant
