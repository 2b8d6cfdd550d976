#include "nibble/store/catalogue.h"

#include <algorithm>
#include <ctime>
#include <set>
#include <sys/stat.h>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/log.h"
#include "nibble/quant/pipeline/check/receipt.h"
#include "nibble/quant/pipeline/inspect.h"
#include "nibble/quant/pipeline/plan/output_place.h"
#include "nibble/store/measurements.h"

namespace nibble::store {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Folders in directory whose names fit, sorted; none when it does not exist.
std::vector<std::string> folders(const fs::path& directory) {
  std::vector<std::string> result;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code gone;
    if (is_version_name(name) && it->is_directory(gone)) {
      result.push_back(name);
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::string joined_schemes(const json& tensors) {
  std::set<std::string> schemes;
  for (const json& tensor : tensors) {
    for (const json& layer : tensor.value("layers", json::array())) {
      if (layer.contains("scheme")) {
        schemes.insert(layer.at("scheme").get<std::string>());
      }
    }
  }
  std::string text;
  for (const std::string& scheme : schemes) {
    text += (text.empty() ? "" : "; ") + scheme;
  }
  return text;
}

Version read_version(const Store& store, const std::string& name) {
  Version version;
  version.name = name;
  version.path = store.version(name);
  const json receipt = quant::read_receipt(version.path);
  try {
    version.source = receipt.at("source").at("path").get<std::string>();
    version.recipe = receipt.at("recipe").value("name", "");
    version.recipe_json = receipt.at("recipe").dump();
    version.scheme = joined_schemes(receipt.at("tensors"));
    version.key = receipt.value("key", "");
    version.bits_per_weight = receipt.at("bits_per_weight").get<double>();
  } catch (const json::exception& error) {
    fail_with_hint(ErrorCode::kCorruptData,
                   "nibble remove " + name + ", and make it again",
                   "{}: found another form of receipt ({})",
                   (version.path / quant::kReceiptName).string(),
                   error.what());
  }
  version.bytes = bytes_below(version.path);
  version.created = written_at(version.path / quant::kReceiptName);
  const Recorded recorded = recorded_measurement(store, name, version.key);
  version.perplexity = recorded.perplexity;
  version.kl = recorded.kl;
  return version;
}

bool is_version(const Store& store, const std::string& name) {
  return fs::is_regular_file(store.version(name) / quant::kReceiptName);
}

}  // namespace

std::string written_at(const fs::path& file) {
  struct stat status {};

  if (::stat(file.c_str(), &status) != 0) {
    return "";
  }
  std::tm parts{};
  ::gmtime_r(&status.st_mtime, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
                     parts.tm_year + 1900,
                     parts.tm_mon + 1,
                     parts.tm_mday,
                     parts.tm_hour,
                     parts.tm_min,
                     parts.tm_sec);
}

std::vector<Version> versions(const Store& store) {
  std::vector<Version> result;
  for (const std::string& name : folders(store.versions())) {
    if (!is_version(store, name)) {
      continue;
    }
    try {
      result.push_back(read_version(store, name));
    } catch (const Error& error) {  // one that is damaged hides no other
      log_warning("{}", error.what());
    }
  }
  return result;
}

std::optional<Version> find_version(const Store& store,
                                    const std::string& name) {
  if (!is_version_name(name) || !is_version(store, name)) {
    return std::nullopt;
  }
  return read_version(store, name);
}

std::vector<SourceModel> models(const Store& store) {
  std::vector<SourceModel> result;
  for (const std::string& owner : folders(store.models())) {
    for (const std::string& name : folders(store.models() / owner)) {
      SourceModel model;
      model.name = owner + "/" + name;
      model.path = store.models() / owner / name;
      model.bytes = bytes_below(model.path);
      model.created = written_at(model.path);
      try {
        const quant::InspectReport report = quant::inspect(model.path);
        model.scheme = report.format;
        model.bits_per_weight = report.bits_per_weight;
      } catch (const Error& error) {
        // Downloaded in part, or of a kind that only other programs read.
        log_info("{}", error.what());
      }
      result.push_back(std::move(model));
    }
  }
  return result;
}

std::vector<std::string> names(const Store& store) {
  std::vector<std::string> result;
  for (const std::string& name : folders(store.versions())) {
    if (is_version(store, name)) {
      result.push_back(name);
    }
  }
  for (const std::string& owner : folders(store.models())) {
    for (const std::string& name : folders(store.models() / owner)) {
      result.push_back(owner + "/" + name);
    }
  }
  return result;
}

}  // namespace nibble::store
