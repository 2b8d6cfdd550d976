#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "nibble/base/hash/hash.h"

namespace nibble::quant {

// The digest of one tensor's bytes in order, fed with pieces in any order:
// tiles are finished by several threads, and a digest that depended on who was
// first could not be checked with any other tool. Thread-safe.
class OrderedDigest {
 public:
  // Bytes at offset of the tensor. Until the bytes before them arrive they
  // must stay as they are: owner is held for as long as they are needed.
  void add(std::uint64_t offset,
           std::span<const std::byte> bytes,
           std::shared_ptr<const void> owner);

  // Lets go of everything that waits; what is added later is ignored. For work
  // that has failed.
  void abandon();
  // kInternal while a gap is left; total_bytes is the tensor's size.
  [[nodiscard]] std::string digest(std::uint64_t total_bytes) const;

 private:
  struct Pending {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
  };

  mutable std::mutex mutex_;
  Hasher hasher_;
  std::uint64_t next_ = 0;
  bool abandoned_ = false;
  std::map<std::uint64_t, Pending> pending_;
};

}  // namespace nibble::quant
