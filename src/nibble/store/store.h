#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace nibble::store {

// Where models and their quantized versions are kept (docs/formats/store.md):
//
//   models/OWNER/NAME/    downloaded models, as the hub has them
//   quantized/NAME/       versions, each with its receipt
//   measurements/NAME.json
//   locks/
//
// There is no index: what the directories hold is what the store holds.
// Nothing is created before something is written.
struct Store {
  std::filesystem::path root;

  [[nodiscard]] std::filesystem::path models() const { return root / "models"; }

  [[nodiscard]] std::filesystem::path versions() const {
    return root / "quantized";
  }

  [[nodiscard]] std::filesystem::path version(std::string_view name) const {
    return versions() / name;
  }

  [[nodiscard]] std::filesystem::path measurements(
      std::string_view name) const {
    return root / "measurements" / (std::string(name) + ".json");
  }
};

// The user's store: NIBBLE_HOME, else XDG_DATA_HOME/nibble, else
// ~/.local/share/nibble. kNotFound when none of the variables is set.
[[nodiscard]] Store user_store();
// As user_store, or nothing.
[[nodiscard]] std::optional<Store> find_user_store();

// Whether text can name a version: letters, digits, '.', '_', '-'; begins with
// a letter or digit; no ending that names unfinished work.
[[nodiscard]] bool is_version_name(std::string_view text);

// Whether text has the form of the hub's names, "owner/name".
[[nodiscard]] bool is_hub_id(std::string_view text);

// "meta-llama/Llama-3-8B" for a path in the store's models or in a Hugging
// Face cache, else the path itself.
[[nodiscard]] std::string shown_source(const Store& store,
                                       const std::filesystem::path& path);

// The model's part of a version's name: the last part of its hub name or path,
// other characters as '-'. path may be a file: its directory counts.
[[nodiscard]] std::string model_part(const Store& store,
                                     const std::filesystem::path& path);

// text with what a version's name cannot hold as '-'; "model" for nothing.
[[nodiscard]] std::string name_part(std::string_view text);

// Bytes of the regular files below path; links count as what they lead to
// only when follow is set.
[[nodiscard]] std::uint64_t bytes_below(const std::filesystem::path& path,
                                        bool follow = true);

}  // namespace nibble::store
