#include "nibble/quant/pipeline/check/receipt_accounts.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {
namespace {

using nlohmann::json;

bool is_fate(const std::string& name) {
  constexpr std::array kFates{Fate::kQuantized,
                              Fate::kCopied,
                              Fate::kSplit,
                              Fate::kMerged,
                              Fate::kDropped};
  return std::any_of(kFates.begin(), kFates.end(), [&](Fate fate) {
    return fate_name(fate) == name;
  });
}

std::string dims(const json& shape) {
  std::string text;
  for (const json& dim : shape) {
    text +=
        (text.empty() ? "" : ", ") + std::to_string(dim.get<std::int64_t>());
  }
  return "(" + text + ")";
}

}  // namespace

std::vector<std::string> receipt_problems(const json& receipt) {
  std::vector<std::string> problems;
  for (const json& tensor : receipt.at("tensors")) {
    const auto name = printable(tensor.at("name").get<std::string>());
    const auto fate = tensor.at("fate").get<std::string>();
    if (!is_fate(fate)) {
      problems.push_back(
          fmt::format("tensor {}: found the fate {}, which does not exist",
                      name,
                      printable(fate)));
    } else if (fate == fate_name(Fate::kDropped)) {
      if (!tensor.contains("reason")) {
        problems.push_back(fmt::format(
            "tensor {}: found it dropped, expected a reason", name));
      }
    } else if (!tensor.contains("outputs") || tensor.at("outputs").empty()) {
      problems.push_back(fmt::format(
          "tensor {}: found no outputs of what is {}, expected some",
          name,
          fate));
    }
  }
  return problems;
}

std::vector<std::string> source_problems(
    const json& receipt, std::span<const container::TensorInfo> source) {
  std::vector<std::string> problems;
  std::map<std::string, const json*> entries;
  for (const json& tensor : receipt.at("tensors")) {
    if (!entries.emplace(tensor.at("name").get<std::string>(), &tensor)
             .second) {
      problems.push_back(fmt::format(
          "tensor {}: found two entries in the receipt, expected one",
          printable(tensor.at("name").get<std::string>())));
    }
  }
  for (const container::TensorInfo& tensor : source) {
    const auto entry = entries.find(tensor.name);
    if (entry == entries.end()) {
      problems.push_back(fmt::format(
          "tensor {}: found it in the source, but the receipt does not "
          "account for it",
          printable(tensor.name)));
      continue;
    }
    const std::string found =
        fmt::format("{} {}", dtype_name(tensor.dtype), to_string(tensor.shape));
    const std::string stated =
        fmt::format("{} {}",
                    entry->second->at("dtype").get<std::string>(),
                    dims(entry->second->at("shape")));
    if (found != stated) {
      problems.push_back(fmt::format(
          "tensor {}: found {} in the source, expected {} as in the receipt",
          printable(tensor.name),
          found,
          printable(stated)));
    }
    entries.erase(entry);
  }
  for (const auto& [name, entry] : entries) {
    // What nothing reads of a native file (extra state, statistics) is told of
    // in the receipt, but is no tensor of the form that it is seen in.
    if (entry->value("fate", "") == "dropped") {
      continue;
    }
    problems.push_back(
        fmt::format("tensor {}: found it in the receipt, but not in the source",
                    printable(name)));
  }
  return problems;
}

}  // namespace nibble::quant
