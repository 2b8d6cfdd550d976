#include "nibble/store/measurements.h"

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"
#include "nibble/base/log.h"
#include "nibble/store/catalogue.h"

namespace nibble::store {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The file of a version, or an empty object when it tells of other content.
// Figures can be measured again, so a damaged file is as good as none.
json measurements_of(const Store& store,
                     const std::string& name,
                     const std::string& key) {
  const fs::path path = store.measurements(name);
  if (key.empty() || !fs::exists(path)) {
    return json::object();
  }
  try {
    json document = read_json_object(path, 1 << 20);
    return document.value("key", json()) == key ? document : json::object();
  } catch (const Error& error) {
    log_warning("{}", error.what());
    return json::object();
  }
}

std::optional<double> value_of(const json& document, const char* kind) {
  const json entry = document.value(kind, json::object());
  const json value = entry.is_object() ? entry.value("value", json()) : json();
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

}  // namespace

void record_measurement(const Store& store,
                        const fs::path& directory,
                        const Measurement& measurement) {
  const fs::path place = fs::weakly_canonical(fs::absolute(directory));
  const std::string name = place.filename().string();
  if (place.parent_path() != store.versions() || !is_version_name(name)) {
    return;
  }
  try {
    const std::optional<Version> version = find_version(store, name);
    if (!version || version->key.empty()) {
      return;
    }
    json document = measurements_of(store, name, version->key);
    document["key"] = version->key;
    const json how = {{"text", measurement.text},
                      {"window", measurement.window},
                      {"windows", measurement.windows}};
    document["perplexity"] = how;
    document["perplexity"]["value"] = measurement.perplexity;
    if (measurement.kl) {
      document["kl"] = how;
      document["kl"]["value"] = *measurement.kl;
      document["kl"]["reference"] = measurement.reference;
    }
    const fs::path path = store.measurements(name);
    fs::create_directories(path.parent_path());
    write_file_atomically(
        path,
        document.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
  } catch (const Error& error) {
    log_info("the measurement is not kept: {}", error.what());
  } catch (const fs::filesystem_error& error) {
    log_info("the measurement is not kept: {}", error.what());
  }
}

Recorded recorded_measurement(const Store& store,
                              const std::string& name,
                              const std::string& key) {
  const json document = measurements_of(store, name, key);
  return {value_of(document, "perplexity"), value_of(document, "kl")};
}

}  // namespace nibble::store
