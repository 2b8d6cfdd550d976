#include "nibble/store/hub/pull.h"

#include <algorithm>
#include <set>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"
#include "nibble/base/hash/hash.h"
#include "nibble/base/parallel.h"
#include "nibble/base/units.h"
#include "nibble/quant/pipeline/check/publish.h"
#include "nibble/store/lock.h"

namespace nibble::store::hub {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kRecordVersion = 1;

// The record of the model at path, or an empty object.
json record_of(const fs::path& path) {
  return fs::exists(path / kPullRecord) ? read_json_object(path / kPullRecord)
                                        : json::object();
}

json entry_of(const RemoteFile& file, std::uint64_t bytes) {
  return {
      {"path", file.path}, {"bytes", bytes}, {"digest", file.digest.text()}};
}

std::set<std::string> paths_of(const std::vector<RemoteFile>& files) {
  std::set<std::string> paths;
  for (const RemoteFile& file : files) {
    paths.insert(file.path);
  }
  return paths;
}

// Whether the model at path is this commit with just these files.
bool is_there(const fs::path& path,
              const RemoteModel& model,
              const std::vector<RemoteFile>& files) {
  const json record = record_of(path);
  const json entries = record.value("files", json::array());
  if (record.value("commit", "") != model.commit ||
      entries.size() != files.size()) {
    return false;
  }
  const std::set<std::string> names = paths_of(files);
  return std::all_of(entries.begin(), entries.end(), [&](const json& entry) {
    const std::string name = entry.value("path", "");
    std::error_code gone;
    return names.contains(name) &&
           fs::file_size(path / name, gone) ==
               entry.value("bytes", std::uint64_t{0}) &&
           !gone;
  });
}

class Pull {
 public:
  Pull(const Store& store,
       const PullOptions& options,
       ProgressSink& progress,
       const std::atomic<bool>& stop)
      : options_(options),
        progress_(progress),
        target_(store.models() / options.id),
        partial_(target_.string() + ".partial"),
        client_(with_stop(options.hub, stop)) {}

  PullReport run() {
    const RemoteModel model = client_.model(options_.id, options_.revision);
    const std::vector<RemoteFile> files =
        choose(model.files, options_.include, options_.exclude);
    PullReport report;
    report.path = target_;
    report.commit = model.commit;
    report.files = files.size();
    report.left_out = model.files.size() - files.size();
    if (is_there(target_, model, files)) {
      for (const RemoteFile& file : files) {
        report.bytes += fs::file_size(target_ / file.path);
      }
      return report;
    }
    check_disk(files);
    download_all(model, files);
    write_record(model, files, report);
    quant::sync_tree(partial_);
    quant::put_in_place(partial_, target_, {});
    report.downloaded = true;
    return report;
  }

 private:
  // Stops when the user does, and when another file has failed.
  HubOptions with_stop(HubOptions hub, const std::atomic<bool>& stop) {
    hub.stopped = [this, &stop, given = hub.stopped] {
      return stop.load() || failed_.load() || (given && given());
    };
    return hub;
  }

  void check_disk(const std::vector<RemoteFile>& files) const {
    std::uint64_t needed = 0;
    for (const RemoteFile& file : files) {
      const std::uint64_t bytes = file.bytes.value_or(0);
      NIBBLE_CHECK(needed + bytes >= needed,
                   kCorruptData,
                   "{}: found impossible lengths of files",
                   options_.id);
      needed += bytes;
    }
    const std::uint64_t free =
        free_disk_bytes(target_) + bytes_below(partial_, /*follow=*/false);
    if (needed > free) {
      fail_with_hint(ErrorCode::kIo,
                     "free some space, or set NIBBLE_HOME to another disk",
                     "pull {}: found {} of free disk space, expected {}",
                     options_.id,
                     format_size(free),
                     format_size(needed));
    }
  }

  void download_all(const RemoteModel& model,
                    const std::vector<RemoteFile>& files) {
    fs::create_directories(partial_ / kPartsFolder);
    std::uint64_t total = 0;
    for (const RemoteFile& file : files) {
      total += file.bytes.value_or(0);
    }
    checked_.resize(files.size());
    progress_.begin("downloading", total);
    parallel_for(static_cast<std::int64_t>(files.size()),
                 1,
                 [&](std::int64_t begin, std::int64_t) {
                   const auto i = static_cast<std::size_t>(begin);
                   try {
                     checked_[i] = provide(model, files[i]);
                   } catch (...) {  // NOLINT: the others must hear of it
                     failed_.store(true);
                     throw;
                   }
                 });
    progress_.end();
  }

  // The file in the partial model: there, taken from the revision before, or
  // downloaded. Gives the digest that was compared.
  ContentDigest provide(const RemoteModel& model, const RemoteFile& file) {
    const fs::path place = partial_ / file.path;
    fs::create_directories(place.parent_path());
    if (holds(place, file)) {
      progress_.advance(*file.bytes);
      return file.digest;
    }
    if (holds(target_ / file.path, file)) {
      std::error_code error;
      fs::remove(place, error);
      fs::create_hard_link(target_ / file.path, place, error);
      if (!error) {
        progress_.advance(*file.bytes);
        return file.digest;
      }
    }
    // Named by content, so that no part of another revision is continued.
    Hasher name;
    name.update(file.path + "\n" + file.digest.text() + "\n" + model.commit);
    const fs::path part =
        partial_ / kPartsFolder / name.digest().substr(std::size("xxh3:") - 1);
    const ContentDigest checked = client_.download(
        options_.id, model.commit, file, part, [this](std::uint64_t n) {
          progress_.advance(n);
        });
    rename_file(part, place);
    return checked;
  }

  // Whether a file is what the hub has, by length and digest.
  static bool holds(const fs::path& place, const RemoteFile& file) {
    std::error_code absent;
    return file.bytes && file.digest.known() &&
           fs::is_regular_file(fs::symlink_status(place, absent)) &&
           fs::file_size(place, absent) == *file.bytes && !absent &&
           digest_like(file.digest, place).text() == file.digest.text();
  }

  void write_record(const RemoteModel& model,
                    const std::vector<RemoteFile>& files,
                    PullReport& report) const {
    json entries = json::array();
    for (std::size_t i = 0; i < files.size(); ++i) {
      RemoteFile file = files[i];
      file.digest = checked_[i];
      const std::uint64_t bytes = fs::file_size(partial_ / file.path);
      report.bytes += bytes;
      if (!file.digest.known()) {
        report.unchecked.push_back(file.path);
      }
      entries.push_back(entry_of(file, bytes));
    }
    drop_strays(files);
    write_file_atomically(partial_ / kPullRecord,
                          json{{"version", kRecordVersion},
                               {"nibble", NIBBLE_VERSION},
                               {"model", options_.id},
                               {"endpoint", options_.hub.endpoint},
                               {"revision", options_.revision},
                               {"commit", model.commit},
                               {"files", std::move(entries)}}
                                  .dump(2) +
                              "\n");
  }

  // Files that an interrupted download of another revision left.
  void drop_strays(const std::vector<RemoteFile>& files) const {
    fs::remove_all(partial_ / kPartsFolder);
    const std::set<std::string> wanted = paths_of(files);
    std::vector<fs::path> strays;
    for (const auto& entry : fs::recursive_directory_iterator(partial_)) {
      const std::string name =
          entry.path().lexically_relative(partial_).generic_string();
      if (!entry.is_directory() && !wanted.contains(name)) {
        strays.push_back(entry.path());
      }
    }
    for (const fs::path& stray : strays) {
      fs::remove(stray);
    }
  }

  const PullOptions& options_;
  ProgressSink& progress_;
  const fs::path target_;
  const fs::path partial_;
  std::atomic<bool> failed_{false};
  const Client client_;
  std::vector<ContentDigest> checked_;  // one a file
};

}  // namespace

PullReport pull(const Store& store,
                const PullOptions& options,
                ProgressSink& progress,
                const std::atomic<bool>& stop,
                const std::function<void(std::string_view)>& say) {
  if (!is_hub_id(options.id)) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "nibble pull meta-llama/Llama-3.2-1B",
                   "pull: found {}, expected the name of a model on the hub, "
                   "OWNER/NAME",
                   printable(options.id));
  }
  const Lock lock = Lock::wait(store, options.id, stop, [&] {
    say(fmt::format("another process is at work on {}; waiting", options.id));
  });
  return Pull(store, options, progress, stop).run();
}

}  // namespace nibble::store::hub
