#include "nibble/quant/pipeline/check/verify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/function_ref.h"
#include "nibble/base/parallel.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/load/native/native_form.h"
#include "nibble/load/native/native_recut.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/check/check.h"
#include "nibble/quant/pipeline/check/publish.h"
#include "nibble/quant/pipeline/check/receipt.h"
#include "nibble/quant/pipeline/check/receipt_accounts.h"
#include "nibble/quant/pipeline/execute/checksum.h"
#include "nibble/quant/pipeline/execute/layer_error.h"
#include "nibble/quant/pipeline/plan/decoded.h"
#include "nibble/quant/pipeline/plan/output_place.h"
#include "nibble/quant/pipeline/plan/survey.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;
using container::TensorInfo;
using nlohmann::json;

// Figures are recomputed by the same code in the same order; anything but
// rounding of the text form is a difference.
constexpr double kFigureTolerance = 1e-9;

// What a receipt says of one written tensor.
struct Promised {
  std::string name;
  std::string dtype;
  std::string checksum;
};

class Verifier {
 public:
  Verifier(const fs::path& directory, ProgressSink& progress)
      : path_(directory), progress_(progress) {}

  VerifyReport run(const std::optional<fs::path>& source) {
    load_receipt();
    directory_ = open_written(path_, format_);
    files_ = &tensors_in_files(directory_);
    if (!receipt_) {
      note_absent_receipt();
    }
    attempt([&] {
      quantized_ = open_quantized(*directory_.config, *directory_.reader);
    });
    if (receipt_) {
      attempt([&] {
        for (std::string& text : receipt_problems(*receipt_)) {
          problem(std::move(text));
        }
      });
      attempt([&] { check_files(); });
      attempt([&] { check_tensors(); });
      attempt([&] { read_layers(); });
    }
    if (quantized_) {
      check_scales();
    } else if (report_.problems.empty()) {
      report_.notes.emplace_back("the checkpoint is dense: it has no scales");
    }
    if (source && (quantized_ || report_.problems.empty())) {
      attempt([&] { compare_with(*source); });
    }
    report_.ok = report_.problems.empty();
    return std::move(report_);
  }

 private:
  void problem(std::string text) {
    const std::scoped_lock lock(mutex_);
    report_.problems.push_back(std::move(text));
  }

  // Runs a check; its failure is a problem.
  void attempt(FunctionRef<void()> check) {
    try {
      check();
    } catch (const Error& error) {
      problem(error.what());
    } catch (const json::exception& error) {
      problem(fmt::format("{}: {}", kReceiptName, error.what()));
    }
  }

  // Runs check(i) for each of count things in parallel; problems come out in
  // the order of i.
  void attempt_all(std::size_t count, FunctionRef<void(std::size_t)> check) {
    std::vector<std::string> found(count);
    parallel_for(static_cast<std::int64_t>(count),
                 1,
                 [&](std::int64_t begin, std::int64_t) {
                   const auto i = static_cast<std::size_t>(begin);
                   try {
                     check(i);
                   } catch (const Error& error) {
                     found[i] = error.what();
                   }
                 });
    for (std::string& text : found) {
      if (!text.empty()) {
        problem(std::move(text));
      }
    }
  }

  void load_receipt();
  void note_absent_receipt();
  void check_files();
  void check_tensors();
  void read_layers();
  void check_scales();
  [[nodiscard]] DType decoded_dtype() const;
  [[nodiscard]] load::CheckpointDirectory open_source(
      const fs::path& path) const;
  void compare_with(const fs::path& source);
  void compare_figures(const std::string& module,
                       const ErrorFigures& found,
                       const ErrorFigures& stated);
  void compare_copies(const load::CheckpointDirectory& source);

  const fs::path path_;
  std::string format_;  // as the receipt says
  load::CheckpointDirectory directory_;
  const container::CheckpointReader* files_ = nullptr;  // of directory_
  ProgressSink& progress_;
  std::optional<json> receipt_;
  std::unique_ptr<QuantizedCheckpoint> quantized_;
  std::map<std::string, std::string> source_checksums_;  // by module
  std::mutex mutex_;
  VerifyReport report_;
};

void Verifier::load_receipt() {
  if (!fs::exists(path_ / kReceiptName)) {
    return;
  }
  attempt([&] {
    receipt_ = read_receipt(path_);
    format_ = receipt_->at("format").get<std::string>();
  });
}

void Verifier::note_absent_receipt() {
  if (fs::exists(path_ / kReceiptName)) {
    return;  // damaged: a problem already
  }
  // What is packed by other rules than those below needs its receipt.
  if (directory_.raw) {
    fail_with_hint(ErrorCode::kNotFound,
                   "verify checks what nibble wrote; inspect shows what "
                   "this checkpoint holds",
                   "{}: found no receipt, expected it beside {}",
                   (path_ / kReceiptName).string(),
                   directory_.raw->files()[0].filename().string());
  }
  report_.notes.push_back(fmt::format(
      "{} is absent: no checksums to compare with, tensors and scales alone "
      "were checked",
      kReceiptName));
}

void Verifier::check_files() {
  std::set<std::string> known;
  for (const json& file : receipt_->at("files")) {
    const auto name = file.at("name").get<std::string>();
    known.insert(name);
    // A receipt is a file like any other: it must not lead out of here.
    const fs::path relative = fs::path(name).lexically_normal();
    if (relative.is_absolute() || relative.empty() ||
        *relative.begin() == "..") {
      problem(fmt::format("{}: found a file {} outside of the directory",
                          kReceiptName,
                          printable(name)));
      continue;
    }
    attempt([&] {
      const CopiedFile found = digest_of_file(directory_.path / relative);
      NIBBLE_CHECK(
          found.checksum == file.at("checksum").get<std::string>(),
          kCheckFailed,
          "file {}: found {} bytes with checksum {}, expected {} bytes with {}",
          printable(name),
          found.bytes,
          found.checksum,
          file.at("bytes").get<std::uint64_t>(),
          printable(file.at("checksum").get<std::string>()));
    });
  }
  std::set<std::string> shards;
  for (const json& shard : receipt_->at("shards")) {
    shards.insert(shard.get<std::string>());
  }
  for (const auto& entry : fs::directory_iterator(directory_.path)) {
    const std::string name = entry.path().filename().string();
    const bool weights = name.ends_with(".safetensors") ||
                         name.ends_with(".pth") || name.ends_with(".pt");
    if (weights && !shards.contains(name)) {
      problem(
          fmt::format("file {}: found weights that the receipt does not "
                      "list",
                      printable(name)));
    }
  }
  for (const fs::path& file : directory_.side_files) {
    if (!known.contains(file.generic_string())) {
      report_.notes.push_back(
          fmt::format("file {} is not in the receipt: it was added later",
                      printable(file.generic_string())));
    }
  }
}

void Verifier::check_tensors() {
  std::vector<Promised> promised;
  std::set<std::string> known;
  std::set<std::string> names;  // of whole tensors
  std::uint64_t bytes = 0;
  for (const json& tensor : receipt_->at("tensors")) {
    if (!tensor.contains("outputs")) {
      continue;  // dropped
    }
    for (const json& output : tensor.at("outputs")) {
      Promised one{output.at("name").get<std::string>(),
                   output.at("dtype").get<std::string>(),
                   output.at("checksum").get<std::string>()};
      // Fused tensors are outputs of several source tensors.
      if (known.insert(one.name).second) {
        names.emplace(container::TensorPart::parse(one.name).tensor);
        promised.push_back(std::move(one));
      }
    }
  }
  for (const TensorInfo& tensor : files_->tensors()) {
    bytes += tensor.bytes;
    if (!names.contains(tensor.name)) {
      problem(fmt::format("tensor {}: found one that the receipt does not list",
                          printable(tensor.name)));
    }
  }
  const auto expected = receipt_->at("output_bytes").get<std::uint64_t>();
  if (bytes != expected) {
    problem(fmt::format(
        "tensors: found {} bytes in all, expected {}", bytes, expected));
  }
  progress_.begin("checksums", bytes);
  attempt_all(promised.size(), [&](std::size_t i) {
    const Promised& one = promised[i];
    const container::PlacedPart found = container::find_part(*files_, one.name);
    NIBBLE_CHECK(found.tensor != nullptr,
                 kCheckFailed,
                 "tensor {}: found none, expected {}",
                 printable(one.name),
                 printable(one.dtype));
    NIBBLE_CHECK(dtype_name(found.tensor->dtype) == one.dtype,
                 kCheckFailed,
                 "tensor {}: found type {}, expected {}",
                 printable(one.name),
                 dtype_name(found.tensor->dtype),
                 printable(one.dtype));
    const std::string checksum = checksum_of(*files_, found);
    NIBBLE_CHECK(checksum == one.checksum,
                 kCheckFailed,
                 "tensor {}: found checksum {}, expected {}",
                 printable(one.name),
                 checksum,
                 printable(one.checksum));
    progress_.advance(found.bytes);
  });
  progress_.end();
}

// Errors as the receipt states them.
void Verifier::read_layers() {
  for (const json& tensor : receipt_->at("tensors")) {
    if (!tensor.contains("layers")) {
      continue;
    }
    for (const json& layer : tensor.at("layers")) {
      const auto name = layer.at("module").get<std::string>();
      const bool first =
          source_checksums_
              .emplace(name, layer.at("source_checksum").get<std::string>())
              .second;
      if (first && layer.contains("relative_mse")) {
        report_.layers.push_back({name,
                                  {layer.at("relative_mse").get<double>(),
                                   layer.at("cosine").get<double>(),
                                   layer.at("max_abs").get<double>()}});
      }
    }
  }
}

void Verifier::check_scales() {
  const std::vector<std::string> modules = quantized_->stored_modules();
  // Codes that were only moved have no figures.
  if (receipt_ && !report_.layers.empty() &&
      modules.size() != report_.layers.size()) {
    problem(
        fmt::format("modules: found {} declared as quantized, expected {} "
                    "as in the receipt",
                    modules.size(),
                    report_.layers.size()));
  }
  const Format& format =
      format_named(format_.empty() ? QuantizeOptions{}.format : format_);
  std::map<std::string, Format::Numbers> tensors;
  for (const std::string& module : modules) {
    const LayerSpec spec = quantized_->spec_of(module).value();
    for (std::string& name : quantized_->tensors_of(module)) {
      const auto numbers =
          format.numbers_in(spec, directory_.reader->get(name));
      tensors.emplace(std::move(name), numbers);
    }
  }
  const std::vector<std::pair<std::string, Format::Numbers>> all(
      tensors.begin(), tensors.end());
  attempt_all(all.size(), [&](std::size_t i) {
    check_numbers(*directory_.reader,
                  directory_.reader->get(all[i].first),
                  all[i].second);
  });
}

// The type to which a quantized source was decoded for this directory.
DType Verifier::decoded_dtype() const {
  if (receipt_) {
    for (const json& tensor : receipt_->at("tensors")) {
      if (tensor.contains("layers") && tensor.at("dtype") == "F32") {
        return DType::kF32;
      }
    }
  }
  return DType::kBF16;
}

// The source in the form in which this directory was written.
load::CheckpointDirectory Verifier::open_source(const fs::path& path) const {
  load::CheckpointDirectory source = load::open_checkpoint(path);
  const bool moved = directory_.raw && source.raw && report_.layers.empty();
  if (source.config->contains("quantization_config") && !moved) {
    source = decode_checkpoint(std::move(source), decoded_dtype()).dense;
  }
  if (!directory_.raw) {
    return source;
  }
  std::int64_t ranks = 0;
  for (const fs::path& file : directory_.raw->files()) {
    ranks += file.extension() == ".pth" ? 1 : 0;
  }
  if (source.raw && source.config->contains("quantization_config")) {
    return load::recut(std::move(source), ranks);
  }
  const bool gpt_fast = format_.starts_with("gpt_fast");
  return load::as_native(
      std::move(source),
      gpt_fast ? load::NativeLayout::kGptFast : load::NativeLayout::kMeta,
      ranks);
}

void Verifier::compare_with(const fs::path& path) {
  const load::CheckpointDirectory source = open_source(path);
  const Survey all = survey(source);
  std::map<std::string_view, const Module*> by_name;
  for (const Module& module : all.modules) {
    by_name.emplace(module.name, &module);
  }
  const std::vector<std::string> modules =
      quantized_ && !(receipt_ && report_.layers.empty())
          ? quantized_->stored_modules()
          : std::vector<std::string>();
  std::vector<std::optional<ErrorFigures>> figures(modules.size());
  progress_.begin("comparing", 0);
  attempt_all(modules.size(), [&](std::size_t i) {
    const auto module = by_name.find(modules[i]);
    NIBBLE_CHECK(module != by_name.end(),
                 kCheckFailed,
                 "module {}: found none of that name in the source",
                 printable(modules[i]));
    const LayerComparison compared = compare_layer(
        *source.reader, module->second->source, *quantized_, modules[i]);
    figures[i] = figures_of(compared.sums);
    const auto expected = source_checksums_.find(modules[i]);
    NIBBLE_CHECK(expected == source_checksums_.end() ||
                     expected->second == compared.source_checksum,
                 kCheckFailed,
                 "module {}: found other weights in the source than were "
                 "quantized",
                 printable(modules[i]));
  });
  progress_.end();
  // What the receipt states must be what comes out.
  std::map<std::string, ErrorFigures> stated;
  for (const LayerError& layer : report_.layers) {
    stated[layer.name] = layer.figures;
  }
  report_.layers.clear();
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (!figures[i]) {
      continue;
    }
    report_.layers.push_back({modules[i], *figures[i]});
    const auto before = stated.find(modules[i]);
    if (before != stated.end()) {
      compare_figures(modules[i], *figures[i], before->second);
    }
  }
  compare_copies(source);
  if (receipt_) {
    // A receipt speaks of the source's own tensors, not of the ranks that they
    // were seen as.
    const container::CheckpointReader& own =
        source.native ? *source.native->source : *source.reader;
    for (std::string& text : source_problems(*receipt_, own.tensors())) {
      problem(std::move(text));
    }
  }
}

void Verifier::compare_figures(const std::string& module,
                               const ErrorFigures& found,
                               const ErrorFigures& stated) {
  const auto compare = [&](const char* what, double now, double then) {
    // Not a number is not near anything.
    if (!(std::fabs(now - then) <= kFigureTolerance * (1 + std::fabs(now)))) {
      problem(
          fmt::format("module {}: found {} {}, expected {} as in the receipt",
                      printable(module),
                      what,
                      now,
                      then));
    }
  };
  compare("relative error", found.relative_mse, stated.relative_mse);
  compare("cosine", found.cosine, stated.cosine);
  compare("largest error", found.max_abs, stated.max_abs);
}

// Tensors that were copied have the source's bytes.
void Verifier::compare_copies(const load::CheckpointDirectory& source) {
  const auto tensors = source.reader->tensors();
  attempt_all(tensors.size(), [&](std::size_t i) {
    const TensorInfo* copy = files_->find(tensors[i].name);
    if (copy == nullptr || copy->dtype != tensors[i].dtype ||
        copy->shape != tensors[i].shape) {
      return;  // quantized, or missing by the receipt
    }
    NIBBLE_CHECK(
        checksum_of(*source.reader, tensors[i]) == checksum_of(*files_, *copy),
        kCheckFailed,
        "tensor {}: found other bytes than in the source",
        printable(tensors[i].name));
  });
}

}  // namespace

VerifyReport verify(const fs::path& directory,
                    const std::optional<fs::path>& source,
                    ProgressSink& progress) {
  return Verifier(directory, progress).run(source);
}

}  // namespace nibble::quant
