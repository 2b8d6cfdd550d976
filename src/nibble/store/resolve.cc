#include "nibble/store/resolve.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/units.h"
#include "nibble/store/catalogue.h"

namespace nibble::store {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value)
                                            : std::nullopt;
}

// Where huggingface_hub keeps what it downloads.
fs::path hub_cache() {
  if (const auto cache = variable("HF_HUB_CACHE")) {
    return *cache;
  }
  if (const auto home = variable("HF_HOME")) {
    return fs::path(*home) / "hub";
  }
  if (const auto cache = variable("XDG_CACHE_HOME")) {
    return fs::path(*cache) / "huggingface/hub";
  }
  const auto home = variable("HOME");
  return home ? fs::path(*home) / ".cache/huggingface/hub" : fs::path();
}

// Whether text is the name of a file of weights rather than of a model.
bool names_a_file(std::string_view text) {
  constexpr std::array<std::string_view, 6> kEndings{
      ".safetensors", ".json", ".pth", ".pt", ".bin", ".gguf"};
  return std::any_of(kEndings.begin(), kEndings.end(), [&](auto ending) {
    return text.ends_with(ending);
  });
}

std::string hint_for(const std::string& text,
                     const std::vector<std::string>& known) {
  std::vector<std::string> near;
  // The part of a name that people remember: "fable-moe" of "owner/fable-moe".
  for (const std::string& name : known) {
    if (name.ends_with("/" + text) || name.starts_with(text + "-")) {
      near.push_back(name);
    }
  }
  if (near.empty()) {
    const std::string nearest = nearest_word(text, known);
    if (!nearest.empty()) {
      near.push_back(nearest);
    }
  }
  std::string hint;
  constexpr std::size_t kShown = 3;
  for (std::size_t i = 0; i < std::min(near.size(), kShown); ++i) {
    hint += (hint.empty() ? "did you mean " : " or ") + near[i];
  }
  hint += hint.empty() ? "" : "?";
  if (is_hub_id(text) && !names_a_file(text)) {
    hint += hint.empty() ? "" : " ";
    hint += "nibble pull " + text + " downloads a model of that name";
  } else if (hint.empty()) {
    hint = "nibble list shows the names in the store";
  }
  return hint;
}

}  // namespace

fs::path cached_snapshot(const std::string& hub_id) {
  const fs::path cache = hub_cache();
  if (cache.empty() || !is_hub_id(hub_id)) {
    return {};
  }
  std::string folder = "models--" + hub_id;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path model = cache / folder;
  const fs::path main = model / "refs/main";
  std::error_code error;
  if (fs::is_regular_file(main, error)) {
    std::string commit = read_text_file(main, 256);
    commit.erase(commit.find_last_not_of(" \t\r\n") + 1);
    // A name, not a path: what stands in the file must not lead elsewhere.
    if (is_version_name(commit) &&
        fs::is_directory(model / "snapshots" / commit, error)) {
      return model / "snapshots" / commit;
    }
  }
  std::vector<fs::path> snapshots;
  for (fs::directory_iterator it(model / "snapshots", error), end;
       !error && it != end;
       it.increment(error)) {
    snapshots.push_back(it->path());
  }
  return snapshots.size() == 1 ? snapshots.front() : fs::path();
}

fs::path resolve_model(const std::string& text) {
  std::error_code error;
  if (fs::exists(text, error)) {
    return text;
  }
  std::vector<std::string> known;
  if (is_version_name(text) || is_hub_id(text)) {
    if (const std::optional<Store> store = find_user_store()) {
      known = names(*store);
      if (std::find(known.begin(), known.end(), text) != known.end()) {
        return is_hub_id(text) ? store->models() / text : store->version(text);
      }
    }
    if (fs::path snapshot = cached_snapshot(text); !snapshot.empty()) {
      return snapshot;
    }
  }
  fail_with_hint(ErrorCode::kNotFound,
                 hint_for(text, known),
                 "{}: found no such directory, expected a path, a name in the "
                 "store or a downloaded model OWNER/NAME",
                 printable(text));
}

}  // namespace nibble::store
