#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/base/progress.h"
#include "nibble/store/hub/client.h"
#include "nibble/store/store.h"

namespace nibble::store::hub {

struct PullOptions {
  std::string id;  // "owner/name"
  std::string revision = "main";
  std::vector<std::string> include = {};
  std::vector<std::string> exclude = {};
  HubOptions hub = {};  // stopped is added to what it asks
};

struct PullReport {
  std::filesystem::path path;
  std::string commit;
  std::size_t files = 0;
  std::uint64_t bytes = 0;   // of all files
  bool downloaded = false;   // false: this revision was there already
  std::size_t left_out = 0;  // files of the model that were not wanted
  // Files of which the hub told no digest that we know: only lengths compared.
  std::vector<std::string> unchecked;
};

// Downloads a model into the store. It grows in models/OWNER/NAME.partial and
// appears under its name once every file is there, was read back with the
// length and digest that the hub tells, and is durable; after a kill, Ctrl-C
// or a lost connection the same call goes on. An earlier revision is replaced
// as a whole; files that did not change are not loaded again. Throws what
// Client and choose throw, kInvalidArgument for an id that is none, kIo when
// the disk is full.
[[nodiscard]] PullReport pull(const Store& store,
                              const PullOptions& options,
                              ProgressSink& progress,
                              const std::atomic<bool>& stop,
                              const std::function<void(std::string_view)>& say);

}  // namespace nibble::store::hub
