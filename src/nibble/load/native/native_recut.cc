#include "nibble/load/native/native_recut.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/container/remap.h"
#include "nibble/container/union.h"
#include "nibble/model/config.h"

namespace nibble::load {
namespace {

using container::CheckpointReader;
using container::RemappedTensor;
using container::SourceRun;
using container::TensorInfo;

// Tensors are looked at as lines of elements along their last dimension.
enum class Cut {
  kWhole,  // the same in every rank
  kWidth,  // along the lines
  kLines,  // lines, in sections that are cut each by itself
  kStack,  // lines of every expert
};

struct Rule {
  Cut cut = Cut::kWhole;
  // Lines of a rank's sections; empty: all lines are one.
  std::vector<std::int64_t> sections = {};
  std::int64_t experts = 1;
  // Scales of cut inputs: lines are groups, of which a rank may hold less than
  // one.
  bool groups = false;
};

bool ends_with_any(std::string_view name,
                   std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) {
    return name.ends_with(end);
  });
}

std::int64_t width_of(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
}

std::int64_t lines_of(const Shape& shape) {
  const std::int64_t width = width_of(shape);
  return width == 0 ? 0 : shape.elements() / width;
}

// A tensor of all old ranks.
struct Parts {
  std::string name;  // in a rank: "scales/..." for scales
  std::vector<const TensorInfo*> tensors;
  Rule rule;
};

class Recutter {
 public:
  Recutter(const nlohmann::json& config,
           std::shared_ptr<const CheckpointReader> raw,
           std::int64_t old_ranks,
           std::int64_t new_ranks,
           bool int4)
      : config_(model::parse_config(config)),
        raw_(std::move(raw)),
        old_(old_ranks),
        new_(new_ranks),
        int4_(int4) {
    check();
  }

  void run(NativeForm& form, std::vector<container::NamedReader>& ranks) {
    find_parts(form);
    join();
    const TensorInfo* first = raw_->tensors().data();
    for (std::int64_t rank = 0; rank < new_; ++rank) {
      std::vector<RemappedTensor> tensors;
      for (const Parts& parts : parts_) {
        tensors.push_back(cut(parts, rank));
        std::vector<std::size_t>& from = form.from.emplace_back();
        for (const TensorInfo* part : parts.tensors) {
          from.push_back(static_cast<std::size_t>(part - first));
        }
      }
      ranks.push_back(
          {fmt::format("rank{}/", rank),
           std::make_shared<container::RemappedReader>(
               std::vector<std::shared_ptr<const CheckpointReader>>{whole_},
               std::move(tensors),
               std::map<std::string, std::string>{})});
    }
  }

 private:
  void check() const {
    std::int64_t common = std::gcd(config_.heads, config_.kv_heads);
    common = std::gcd(common, config_.vocabulary);
    if (new_ < 1 || common % new_ != 0) {
      fail_with_hint(ErrorCode::kInvalidArgument,
                     fmt::format("any divisor of {} works", common),
                     "shards: found {}, expected a number that divides the "
                     "heads, key heads, vocabulary and MLP widths",
                     new_);
    }
  }

  void find_parts(NativeForm& form) {
    constexpr std::string_view kFirst = "rank0/";
    for (const TensorInfo& tensor : raw_->tensors()) {
      if (!tensor.name.starts_with(kFirst)) {
        continue;
      }
      Parts parts;
      parts.name = tensor.name.substr(kFirst.size());
      for (std::int64_t rank = 0; rank < old_; ++rank) {
        parts.tensors.push_back(&raw_->get(
            fmt::format("rank{}/{}", rank, name_in(parts.name, rank))));
      }
      if (parts.name.starts_with("vision_")) {
        for (const TensorInfo* part : parts.tensors) {
          form.dropped.push_back(
              {static_cast<std::size_t>(part - raw_->tensors().data()),
               "vision weights: the text model alone is written"});
        }
        continue;
      }
      parts.rule = rule_of(parts.name, *parts.tensors[0]);
      parts_.push_back(std::move(parts));
    }
  }

  // Llama 3's fp8 scales bear the number of their rank:
  // "scales/1_feed_forward.w1_0".
  static std::string name_in(const std::string& name, std::int64_t rank) {
    if (name.starts_with("scales/") &&
        ends_with_any(name, {"w1_0", "w2_0", "w3_0"})) {
      return name.substr(0, name.size() - 1) + std::to_string(rank);
    }
    return name;
  }

  [[nodiscard]] Rule rule_of(const std::string& name,
                             const TensorInfo& tensor) const {
    if (name.starts_with("scales/")) {
      return rule_of_scales(name);
    }
    if (name == "tok_embeddings.weight") {
      return {width_of(tensor.shape) == config_.hidden ? Cut::kLines
                                                       : Cut::kWidth};
    }
    if (name.ends_with("attention.wqkv.weight")) {
      const std::int64_t query = config_.heads * config_.head_dim / old_;
      const std::int64_t key = config_.kv_heads * config_.head_dim / old_;
      return {Cut::kLines, {query, key, key}};
    }
    if (name.ends_with("feed_forward.mlp.fc1_weight")) {
      const std::int64_t half = lines_of(tensor.shape) / 2;
      return {Cut::kLines, {half, half}};
    }
    if (name.ends_with("experts.moe_w_out_eF_D")) {
      return {Cut::kStack, {}, config_.experts};
    }
    if (ends_with_any(name,
                      {"attention.wo.weight",
                       "feed_forward.w2.weight",
                       "feed_forward.mlp.fc2_weight",
                       "w_out_shared_DF.weight",
                       "shared_expert.w2.weight",
                       "experts.moe_w_in_eD_F",
                       "experts.moe_w_swiglu_eD_F"})) {
      return {Cut::kWidth};
    }
    if (name == "output.weight" || ends_with_any(name,
                                                 {"attention.wq.weight",
                                                  "attention.wk.weight",
                                                  "attention.wv.weight",
                                                  "feed_forward.w1.weight",
                                                  "feed_forward.w3.weight",
                                                  "w_in_shared_FD.weight",
                                                  "w_swiglu_FD.weight",
                                                  "shared_expert.w1.weight",
                                                  "shared_expert.w3.weight"})) {
      return {Cut::kLines};
    }
    return {};
  }

  // Scales stand as (experts, groups, out). Outputs are cut along the lines;
  // inputs, of down projections, in groups.
  [[nodiscard]] Rule rule_of_scales(const std::string& name) const {
    if (ends_with_any(name, {"experts.moe_w_out_eF_D", "experts.w2"})) {
      return {Cut::kStack, {}, config_.experts, true};
    }
    if (ends_with_any(name, {"w_out_shared_DF.weight", "feed_forward.w2_0"})) {
      return {Cut::kStack, {}, 1, true};
    }
    return {Cut::kWidth};
  }

  // The tensors of one rank that holds everything.
  void join() {
    std::vector<RemappedTensor> tensors;
    const CheckpointReader* reader = raw_.get();
    for (const Parts& parts : parts_) {
      const TensorInfo& like = *parts.tensors[0];
      const std::int64_t width = width_of(like.shape);
      const std::int64_t lines = lines_of(like.shape);
      TensorInfo info;
      info.name = parts.name;
      info.dtype = like.dtype;
      const auto all = parts.tensors;
      const auto run = [reader, all, width](std::int64_t rank,
                                            std::int64_t line) {
        return SourceRun{
            reader, all[static_cast<std::size_t>(rank)], line * width, width};
      };
      std::function<void(std::int64_t, std::vector<SourceRun>&)> row;
      const std::int64_t ranks = old_;
      switch (parts.rule.cut) {
        case Cut::kWhole:
          info.shape = like.shape;
          row = [run](std::int64_t line, std::vector<SourceRun>& runs) {
            runs.push_back(run(0, line));
          };
          break;
        case Cut::kWidth:
          info.shape = {lines, width * ranks};
          row = [run, ranks](std::int64_t line, std::vector<SourceRun>& runs) {
            for (std::int64_t rank = 0; rank < ranks; ++rank) {
              runs.push_back(run(rank, line));
            }
          };
          break;
        case Cut::kLines:
        case Cut::kStack: {
          info.shape = {lines * ranks, width};
          const std::vector<std::int64_t> sections =
              sections_of(parts.rule, lines);
          row = [run, ranks, sections](std::int64_t line,
                                       std::vector<SourceRun>& runs) {
            std::int64_t first = 0;  // line of a rank
            for (const std::int64_t section : sections) {
              if (line < section * ranks) {
                runs.push_back(run(line / section, first + line % section));
                return;
              }
              line -= section * ranks;
              first += section;
            }
          };
          break;
        }
      }
      tensors.push_back({std::move(info), std::move(row)});
    }
    whole_ = std::make_shared<container::RemappedReader>(
        std::vector<std::shared_ptr<const CheckpointReader>>{raw_},
        std::move(tensors),
        std::map<std::string, std::string>{});
  }

  // Lines of a rank, section by section; of a stack, expert by expert.
  static std::vector<std::int64_t> sections_of(const Rule& rule,
                                               std::int64_t lines) {
    if (!rule.sections.empty()) {
      return rule.sections;
    }
    return std::vector<std::int64_t>(static_cast<std::size_t>(rule.experts),
                                     lines / rule.experts);
  }

  [[noreturn]] void refuse(const Parts& parts, std::int64_t found) const {
    fail(ErrorCode::kInvalidArgument,
         "shards: found {}, expected a number that divides {} of tensor {}",
         new_,
         found,
         printable(parts.name));
  }

  // What rank `rank` of the new ranks holds of a tensor.
  RemappedTensor cut(const Parts& parts, std::int64_t rank) const {
    const TensorInfo* whole = &whole_->get(parts.name);
    const CheckpointReader* reader = whole_.get();
    const Shape& old = parts.tensors[0]->shape;
    const std::int64_t width = width_of(whole->shape);
    RemappedTensor result;
    result.info.name = name_in(parts.name, rank);
    result.info.dtype = whole->dtype;
    if (parts.rule.cut == Cut::kWhole) {
      result.info.shape = old;
      result.row = [=](std::int64_t line, std::vector<SourceRun>& runs) {
        runs.push_back({reader, whole, line * width, width});
      };
      return result;
    }
    if (parts.rule.cut == Cut::kWidth) {
      if (width % new_ != 0) {
        refuse(parts, width);
      }
      const std::int64_t part = width / new_;
      result.info.shape = with_width(old, part);
      result.row = [=](std::int64_t line, std::vector<SourceRun>& runs) {
        runs.push_back({reader, whole, line * width + rank * part, part});
      };
      return result;
    }
    cut_lines(parts, rank, *whole, result);
    return result;
  }

  void cut_lines(const Parts& parts,
                 std::int64_t rank,
                 const TensorInfo& whole,
                 RemappedTensor& result) const {
    struct Section {
      std::int64_t first = 0;  // line of the whole
      std::int64_t lines = 0;
    };

    const std::int64_t width = width_of(whole.shape);
    std::vector<Section> sections;
    std::int64_t first = 0;
    std::int64_t lines = 0;
    for (const std::int64_t old :
         sections_of(parts.rule, lines_of(parts.tensors[0]->shape))) {
      const std::int64_t all = old * old_;
      Section section{first + all / new_ * rank, all / new_};
      if (all % new_ != 0) {
        if (!parts.rule.groups || new_ % all != 0) {
          refuse(parts, all);
        }
        section = {first + rank * all / new_, 1};  // a part of a group
      }
      first += all;
      lines += section.lines;
      sections.push_back(section);
    }
    result.info.shape = with_lines(parts, lines, width);
    const CheckpointReader* reader = whole_.get();
    const TensorInfo* tensor = &whole;
    result.row = [=](std::int64_t line, std::vector<SourceRun>& runs) {
      for (const Section& section : sections) {
        if (line < section.lines) {
          runs.push_back(
              {reader, tensor, (section.first + line) * width, width});
          return;
        }
        line -= section.lines;
      }
    };
  }

  static Shape with_width(const Shape& shape, std::int64_t width) {
    std::vector<std::int64_t> dims(shape.begin(), shape.end());
    dims.back() = width;
    return Shape(std::span<const std::int64_t>(dims));
  }

  // Shape of a tensor whose lines were cut: fp8 files have no axis of groups
  // while there is one for each output.
  [[nodiscard]] Shape with_lines(const Parts& parts,
                                 std::int64_t lines,
                                 std::int64_t width) const {
    const Rule& rule = parts.rule;
    if (!rule.groups) {
      return {lines, width};
    }
    const std::int64_t groups = lines / rule.experts;
    std::vector<std::int64_t> dims;
    if (parts.name.find("experts.") != std::string::npos) {
      dims.push_back(rule.experts);
    }
    if (groups > 1 || int4_) {
      dims.push_back(groups);
    }
    dims.push_back(width);
    return Shape(std::span<const std::int64_t>(dims));
  }

  model::ModelConfig config_;
  std::shared_ptr<const CheckpointReader> raw_;
  std::int64_t old_;
  std::int64_t new_;
  bool int4_;
  std::vector<Parts> parts_;
  std::shared_ptr<const CheckpointReader> whole_;
};

}  // namespace

CheckpointDirectory recut(CheckpointDirectory source, std::int64_t ranks) {
  NIBBLE_CHECK(source.raw != nullptr,
               kInternal,
               "recut: found no shards of Meta's layout");
  auto form = std::make_shared<NativeForm>();
  form->layout = NativeLayout::kMeta;
  form->ranks = ranks;
  form->source = source.raw;
  const auto entry = source.config->find("quantization_config");
  if (entry != source.config->end()) {
    const std::string mode = entry->value("mode", "");
    form->packed = mode.substr(0, mode.find('_'));
    source.config->erase(entry);
  }
  std::vector<container::NamedReader> readers;
  Recutter(*source.config,
           source.raw,
           default_ranks(source, NativeLayout::kMeta),
           ranks,
           form->packed == "int4")
      .run(*form, readers);
  source.reader = std::make_unique<container::UnionReader>(std::move(readers));
  forget_old_files(source);
  source.raw.reset();
  source.native = std::move(form);
  return source;
}

}  // namespace nibble::load
