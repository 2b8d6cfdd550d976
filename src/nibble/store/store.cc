#include "nibble/store/store.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "nibble/base/error.h"

namespace nibble::store {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxNameBytes = 200;  // room for suffixes below 255

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9');
}

bool is_name_char(char c) {
  return is_plain(c) || c == '.' || c == '_' || c == '-';
}

// A variable that is set and not empty, as a path; else nothing.
fs::path environment_path(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? fs::path(value) : fs::path();
}

}  // namespace

std::optional<Store> find_user_store() {
  if (const fs::path home = environment_path("NIBBLE_HOME"); !home.empty()) {
    return Store{fs::weakly_canonical(fs::absolute(home))};
  }
  if (const fs::path data = environment_path("XDG_DATA_HOME");
      data.is_absolute()) {  // a relative one is to be ignored, its authors say
    return Store{fs::weakly_canonical(data / "nibble")};
  }
  if (const fs::path home = environment_path("HOME"); !home.empty()) {
    return Store{
        fs::weakly_canonical(fs::absolute(home) / ".local/share/nibble")};
  }
  return std::nullopt;
}

Store user_store() {
  std::optional<Store> store = find_user_store();
  if (!store) {
    fail_with_hint(ErrorCode::kNotFound,
                   "set NIBBLE_HOME to a directory for models",
                   "store: found neither NIBBLE_HOME nor HOME in the "
                   "environment, expected one of them");
  }
  return *std::move(store);
}

bool is_version_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         is_plain(text.front()) &&
         std::all_of(text.begin(), text.end(), is_name_char) &&
         !text.ends_with(".partial") && !text.ends_with(".replaced");
}

bool is_hub_id(std::string_view text) {
  const std::size_t slash = text.find('/');
  return slash != std::string_view::npos &&
         is_version_name(text.substr(0, slash)) &&
         is_version_name(text.substr(slash + 1));
}

std::string shown_source(const Store& store, const fs::path& path) {
  const fs::path relative = path.lexically_relative(store.models());
  if (std::distance(relative.begin(), relative.end()) == 2 &&
      is_hub_id(relative.generic_string())) {
    return relative.generic_string();
  }
  // .../models--OWNER--NAME/snapshots/REVISION
  constexpr std::string_view kPrefix = "models--";
  if (path.parent_path().filename() == "snapshots") {
    const std::string folder =
        path.parent_path().parent_path().filename().string();
    const std::size_t split = folder.find("--", kPrefix.size());
    if (folder.starts_with(kPrefix) && split != std::string::npos) {
      return folder.substr(kPrefix.size(), split - kPrefix.size()) + "/" +
             folder.substr(split + 2);
    }
  }
  return path.string();
}

std::string model_part(const Store& store, const fs::path& path) {
  fs::path directory = fs::weakly_canonical(fs::absolute(path));
  if (fs::is_regular_file(directory) || !directory.has_filename()) {
    directory = directory.parent_path();
  }
  return name_part(
      fs::path(shown_source(store, directory)).filename().string());
}

std::string name_part(std::string_view text) {
  constexpr std::size_t kMaxPartBytes = 80;
  std::string name(text.substr(0, kMaxPartBytes));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !is_name_char(c); }, '-');
  name.erase(
      0,
      static_cast<std::size_t>(
          std::find_if(name.begin(), name.end(), is_plain) - name.begin()));
  return name.empty() ? "model" : name;
}

std::uint64_t bytes_below(const fs::path& path, bool follow) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end;
       !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    if (it->is_regular_file(gone) && (follow || !it->is_symlink(gone))) {
      const std::uintmax_t size = it->file_size(gone);
      bytes += gone ? 0 : size;
    }
  }
  return bytes;
}

}  // namespace nibble::store
