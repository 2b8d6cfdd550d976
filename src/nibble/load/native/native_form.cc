#include "nibble/load/native/native_form.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/container/union.h"
#include "nibble/model/family.h"

namespace nibble::load {
namespace {

using container::CheckpointReader;
using container::TensorInfo;

void refuse_packed(const nlohmann::json& config) {
  const auto entry = config.find("quantization_config");
  if (entry != config.end() && !entry->is_null()) {
    fail_with_hint(ErrorCode::kUnsupported,
                   "give the original checkpoint in 16 or 32 bits",
                   "source: found a checkpoint that is already quantized, "
                   "expected a dense one");
  }
}

// Why a tensor that no rank holds may stay behind.
std::string reason_to_drop(const model::TensorPlace& place) {
  switch (place.role) {
    case model::Role::kVision:
      return "vision weights: the text model alone is written";
    case model::Role::kBuffer:
      return "derived from the config";
    default:
      return {};
  }
}

void find_dropped(const nlohmann::json& config, NativeForm& form) {
  std::set<std::size_t> used;
  for (const auto& from : form.from) {
    used.insert(from.begin(), from.end());
  }
  const model::Family& family = model::family_of(config);
  const auto tensors = form.source->tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (used.contains(i)) {
      continue;
    }
    std::string reason = reason_to_drop(
        model::place_of(family, config, tensors[i].name, tensors[i].shape));
    NIBBLE_CHECK(!reason.empty(),
                 kUnsupported,
                 "tensor {}: found a tensor that the layout has no place for",
                 printable(tensors[i].name));
    form.dropped.push_back({i, std::move(reason)});
  }
}

// The form of a checkpoint, and its ranks.
std::vector<container::NamedReader> view_ranks(const nlohmann::json& config,
                                               NativeForm& form) {
  const TensorInfo* first = form.source->tensors().data();
  std::vector<container::NamedReader> ranks;
  for (std::int64_t rank = 0; rank < form.ranks; ++rank) {
    std::shared_ptr<container::RemappedReader> view =
        view_as_native(form.source, config, form.layout, form.ranks, rank);
    for (const TensorInfo& tensor : view->tensors()) {
      std::vector<std::size_t>& from = form.from.emplace_back();
      for (const TensorInfo* part : view->from(tensor)) {
        from.push_back(static_cast<std::size_t>(part - first));
      }
    }
    ranks.push_back({fmt::format("rank{}/", rank), std::move(view)});
  }
  return ranks;
}

}  // namespace

void forget_old_files(CheckpointDirectory& source) {
  std::erase(source.side_files, std::filesystem::path("checklist.chk"));
  if (!std::filesystem::exists(source.path / "config.json")) {
    source.config_text.clear();
  }
}

std::int64_t default_ranks(const CheckpointDirectory& source,
                           NativeLayout layout) {
  std::int64_t ranks = 0;
  if (layout == NativeLayout::kMeta && source.raw) {
    for (const std::filesystem::path& file : source.raw->files()) {
      ranks += file.extension() == ".pth" ? 1 : 0;
    }
  }
  return std::max<std::int64_t>(1, ranks);
}

CheckpointDirectory as_native(CheckpointDirectory source,
                              NativeLayout layout,
                              std::int64_t ranks) {
  const nlohmann::json& config = *source.config;
  refuse_packed(config);
  auto form = std::make_shared<NativeForm>();
  form->layout = layout;
  form->ranks = ranks;
  form->source = std::move(source.reader);
  source.reader =
      std::make_unique<container::UnionReader>(view_ranks(config, *form));
  find_dropped(config, *form);
  const bool has_params = std::filesystem::exists(source.path / "params.json");
  if (layout == NativeLayout::kMeta && !has_params) {
    form->params_text = params_from_config(config).dump(2) + "\n";
  }
  forget_old_files(source);
  // gpt-fast's files have names alone to tell their architecture.
  if (layout == NativeLayout::kGptFast && !has_params &&
      source.config_text.empty()) {
    source.config_text = config.dump(2) + "\n";
  }
  source.raw.reset();
  source.native = std::move(form);
  return source;
}

}  // namespace nibble::load
