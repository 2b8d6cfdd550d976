#include "nibble/cli/common/prompt.h"

#include <string>

#include <nlohmann/json.hpp>

#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"

namespace nibble::cli {
namespace {

namespace fs = std::filesystem;

bool wants_bos(const fs::path& directory) {
  const fs::path settings_file = directory / "tokenizer_config.json";
  nlohmann::json settings = nlohmann::json::object();
  if (fs::exists(settings_file)) {
    settings = read_json_object(settings_file);
  }
  if (const auto entry = settings.find("add_bos_token");
      entry != settings.end() && entry->is_boolean()) {
    return entry->get<bool>();
  }
  const fs::path template_file = directory / "chat_template.jinja";
  std::string chat;
  if (fs::exists(template_file)) {
    chat = read_text_file(template_file);
  } else if (const auto entry = settings.find("chat_template");
             entry != settings.end()) {
    chat = entry->dump();
  }
  return chat.find("bos_token") != std::string::npos;
}

}  // namespace

std::vector<std::int32_t> encode_beginning(const text::Tokenizer& tokenizer,
                                           const fs::path& directory,
                                           const model::ModelConfig& config,
                                           std::string_view text) {
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  const std::optional<std::int32_t> bos = config.bos_token;
  if (bos && (ids.empty() || ids.front() != *bos) && wants_bos(directory)) {
    ids.insert(ids.begin(), *bos);
  }
  return ids;
}

}  // namespace nibble::cli
