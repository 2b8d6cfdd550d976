#include "nibble/container/safetensors/index.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/json.h"

namespace nibble::container {
namespace {

// A name that stays in its folder on every system.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
         name.find_first_of(std::string_view("/\\:\0", 4)) ==
             std::string_view::npos;
}

// Takes weight_map and metadata.total_size out of the parser's events. A
// document tree would lose the duplicates that must be refused.
class IndexHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsIndex take() {
    NIBBLE_CHECK(weight_map_seen_, kCorruptData, "found no weight_map");
    return std::move(index_);
  }

  bool null() override { return value("null"); }

  bool boolean(bool /*value*/) override { return value("a boolean"); }

  bool number_integer(number_integer_t /*value*/) override {
    return value("a number");
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (path_ == Path::kMetadata && depth_ == 2 && key_ == "total_size") {
      index_.total_bytes = number;
    }
    return value("a number");
  }

  bool number_float(number_float_t /*value*/,
                    const string_t& /*text*/) override {
    return value("a number");
  }

  bool binary(binary_t& /*value*/) override { return value("binary data"); }

  bool string(string_t& text) override {
    if (path_ != Path::kWeightMap) {
      return value("text");
    }
    NIBBLE_CHECK(is_plain_file_name(text),
                 kCorruptData,
                 "tensor {}: found file name '{}', expected a plain one inside "
                 "the model's directory",
                 printable(key_),
                 printable(text));
    const auto [at, inserted] =
        index_.weight_map.try_emplace(std::move(key_), std::move(text));
    NIBBLE_CHECK(inserted,
                 kCorruptData,
                 "tensor {}: found twice, expected once",
                 printable(at->first));
    return true;
  }

  bool start_object(std::size_t /*size*/) override {
    if (depth_ == 1 && key_ == "weight_map") {
      NIBBLE_CHECK(!weight_map_seen_, kCorruptData, "found weight_map twice");
      weight_map_seen_ = true;
      path_ = Path::kWeightMap;
    } else if (depth_ == 1 && key_ == "metadata") {
      path_ = Path::kMetadata;
    } else if (depth_ != 0) {
      value("an object");
    }
    return descend();
  }

  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }

  bool end_object() override { return ascend(); }

  bool start_array(std::size_t /*size*/) override {
    value("a list");
    return descend();
  }

  bool end_array() override { return ascend(); }

  bool parse_error(std::size_t byte,
                   const std::string& last_token,
                   const nlohmann::json::exception& /*error*/) override {
    fail(ErrorCode::kCorruptData,
         "byte {}: found '{}', which is not valid JSON there",
         byte,
         printable(last_token));
  }

 private:
  enum class Path { kOther, kWeightMap, kMetadata };

  // Any value that is not a file name: fine except at the root and within
  // weight_map.
  bool value(std::string_view found) const {
    NIBBLE_CHECK(
        depth_ != 0, kCorruptData, "found {}, expected a JSON object", found);
    NIBBLE_CHECK(
        path_ != Path::kWeightMap && !(depth_ == 1 && key_ == "weight_map"),
        kCorruptData,
        "weight_map: {}: found {}, expected text",
        printable(key_),
        found);
    return true;
  }

  bool descend() {
    NIBBLE_CHECK(depth_ < kMaxJsonDepth,
                 kCorruptData,
                 "found JSON nested deeper than {} levels",
                 kMaxJsonDepth);
    ++depth_;
    return true;
  }

  bool ascend() {
    --depth_;
    if (depth_ == 1) {
      path_ = Path::kOther;
    }
    return true;
  }

  SafetensorsIndex index_;
  std::string key_;
  int depth_ = 0;
  Path path_ = Path::kOther;
  bool weight_map_seen_ = false;
};

}  // namespace

SafetensorsIndex parse_safetensors_index(std::string_view text) {
  // The JSON parser would take a NUL for the end of the text.
  NIBBLE_CHECK(text.find('\0') == std::string_view::npos,
               kCorruptData,
               "byte {}: found NUL, expected JSON",
               text.find('\0'));
  IndexHandler handler;
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  return handler.take();
}

std::string serialize_safetensors_index(const SafetensorsIndex& index) {
  nlohmann::json json;
  json["metadata"] = nlohmann::json::object();
  if (index.total_bytes) {
    json["metadata"]["total_size"] = *index.total_bytes;
  }
  json["weight_map"] = nlohmann::json::object();
  for (const auto& [tensor, file] : index.weight_map) {
    json["weight_map"][tensor] = file;
  }
  return json.dump(2) + "\n";
}

std::string safetensors_file_name(std::size_t number, std::size_t count) {
  return count == 1
             ? std::string(kSafetensorsSingleName)
             : fmt::format(
                   "model-{:05}-of-{:05}.safetensors", number + 1, count);
}

}  // namespace nibble::container
