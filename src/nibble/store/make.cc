#include "nibble/store/make.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/hash/hash.h"
#include "nibble/quant/pipeline/partial/journal.h"
#include "nibble/quant/pipeline/plan/output_place.h"
#include "nibble/store/catalogue.h"
#include "nibble/store/lock.h"
#include "nibble/store/remove.h"

namespace nibble::store {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSuffixDigits = 8;

// The first digits of "xxh3:...".
std::string short_digest(std::string_view digest) {
  return std::string(
      digest.substr(digest.find(':') + 1).substr(0, kSuffixDigits));
}

// Absolute, links resolved: the same source has one path.
fs::path one_path(const fs::path& path) {
  const fs::path result = fs::weakly_canonical(fs::absolute(path));
  return result.has_filename() ? result : result.parent_path();
}

// A source that was opened, and what quantizing it would give.
struct Wanted {
  load::CheckpointDirectory source;
  std::string plan;  // hash
  std::string key;
};

Wanted plan_of(const MakeRequest& request) {
  Wanted wanted;
  wanted.source = load::open_checkpoint(one_path(request.source));
  quant::QuantizeOptions options = request.options;
  options.output.clear();
  const quant::Plan plan =
      quant::make_plan(wanted.source, request.recipe, options);
  wanted.plan = quant::plan_hash(plan, wanted.source);
  wanted.key = quant::content_key(plan, wanted.source);
  return wanted;
}

// Whether the journal there belongs to a plan, or to none yet: a run that was
// killed before it had written its first line is anybody's to go on with.
bool has_work_of(const fs::path& directory, const std::string& plan) {
  if (!fs::exists(directory / quant::kJournalName)) {
    return false;
  }
  const std::optional<quant::JobKey> key = quant::Journal::key_in(directory);
  return !key || key->plan == plan;
}

// Whether a run may write there: nothing stands in its way, or what stands
// there is its own unfinished work.
bool is_free_for(const fs::path& place, const std::string& plan) {
  const fs::path partial = quant::partial_path(place);
  if (fs::exists(place)) {
    // Published, but killed before its journal was removed.
    return has_work_of(place, plan);
  }
  return !fs::exists(partial) || fs::is_empty(partial) ||
         has_work_of(partial, plan);
}

// Of the names that a version may have the one that holds the key.
std::optional<Version> finished(const Store& store,
                                const std::vector<std::string>& names,
                                const std::string& key) {
  for (const std::string& name : names) {
    std::optional<Version> version = find_version(store, name);
    if (version && version->key == key &&
        !fs::exists(version->path / quant::kJournalName)) {
      return version;
    }
  }
  return std::nullopt;
}

MadeVersion found(const Version& version) {
  MadeVersion result;
  result.name = version.name;
  result.path = version.path;
  return result;
}

// A version that was made of a source which is gone, with the same recipe.
std::optional<Version> orphan(const Store& store, const MakeRequest& request) {
  const std::string recipe = quant::to_json(request.recipe).dump();
  const fs::path source = one_path(request.source);
  for (Version& version : versions(store)) {
    if (version.source == source && version.recipe_json == recipe) {
      return std::move(version);
    }
  }
  return std::nullopt;
}

}  // namespace

bool was_made_from(const Store& store, const fs::path& source) {
  const std::vector<Version> all = versions(store);
  return std::any_of(all.begin(), all.end(), [&](const Version& version) {
    return version.source == one_path(source);
  });
}

std::string version_name(const Store& store,
                         const fs::path& source,
                         const quant::Recipe& recipe) {
  const std::string name =
      !recipe.name.empty()
          ? name_part(recipe.name)
          : "recipe-" +
                short_digest(hash_bytes(std::as_bytes(
                    std::span<const char>(quant::to_json(recipe).dump()))));
  return model_part(store, source) + "-" + name;
}

MadeVersion find_or_make(const Store& store,
                         const MakeRequest& request,
                         ProgressSink& progress,
                         const std::atomic<bool>& stop,
                         const std::function<void(std::string_view)>& say) {
  Wanted wanted;
  try {
    wanted = plan_of(request);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) {
      if (const auto version = orphan(store, request)) {
        say(fmt::format("the source {} is gone; {} was made from it",
                        request.source.string(),
                        version->name));
        return found(*version);
      }
    }
    throw;
  }
  const std::string base =
      version_name(store, one_path(request.source), request.recipe);
  const std::vector<std::string> names = {
      base, base + "-" + short_digest(wanted.key)};
  if (!request.options.overwrite) {
    if (const auto version = finished(store, names, wanted.key)) {
      return found(*version);
    }
  }

  const Lock lock = Lock::wait(store, base, stop, [&] {
    say(fmt::format("another process is at work on {}; waiting", base));
  });
  if (const auto version = finished(store, names, wanted.key)) {
    if (!request.options.overwrite) {
      return found(*version);
    }
    remove_directory(version->path);
  }
  const std::string& name =
      is_free_for(store.version(names[0]), wanted.plan) ? names[0] : names[1];
  say(fmt::format("making {} ...", name));
  fs::create_directories(store.versions());
  quant::QuantizeOptions options = request.options;
  options.output = store.version(name);
  options.overwrite = false;
  const quant::QuantizeReport report =
      quant::quantize(wanted.source, request.recipe, options, progress, stop);
  return {name, options.output, true, report.resumed_parts, report.notes};
}

}  // namespace nibble::store
