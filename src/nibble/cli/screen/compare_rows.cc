#include "nibble/cli/screen/compare_rows.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/units.h"
#include "nibble/cli/screen/table.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/core/registry.h"
#include "nibble/report/html.h"
#include "nibble/report/plots.h"

namespace nibble::cli {
namespace {

using nlohmann::json;

std::string group_text(const quant::NumberSpec& spec) {
  switch (spec.grain) {
    case quant::Grain::kGroup:
      return std::to_string(spec.group);
    case quant::Grain::kBlock:
      return fmt::format("{} x {}", spec.block_rows, spec.block_columns);
    default:
      return std::string(grain_name(spec.grain));
  }
}

std::string activations_text(const quant::LayerSpec& spec) {
  if (!spec.input) {
    return "none";
  }
  if (spec.input->grain == quant::Grain::kTensor) {
    return spec.input->scheme + " static";
  }
  return spec.input->grain == quant::Grain::kGroup
             ? fmt::format("{} per {}", spec.input->scheme, spec.input->group)
             : spec.input->scheme + " per token";
}

// Values of all layers, each once: "int4 + int8".
std::string joined(const std::set<std::string>& values) {
  return fmt::format("{}", fmt::join(values, " + "));
}

// The type that most of a dense checkpoint's bytes have.
std::string dense_type(const container::CheckpointReader& reader) {
  std::map<std::string, std::uint64_t> bytes;
  for (const container::TensorInfo& tensor : reader.tensors()) {
    bytes[std::string(dtype_name(tensor.dtype))] += tensor.bytes;
  }
  std::string most;
  for (const auto& [type, count] : bytes) {
    if (most.empty() || count > bytes[most]) {
      most = type;
    }
  }
  return most;
}

std::string number(const json& row,
                   const char* key,
                   const char* format,
                   double factor = 1) {
  return row.contains(key) ? fmt::format(fmt::runtime(format),
                                         factor * row.at(key).get<double>())
                           : "-";
}

std::string size(const json& row, const char* key) {
  return row.contains(key) ? format_size(row.at(key).get<std::uint64_t>())
                           : "-";
}

std::string word(const json& row, const char* key) {
  return row.contains(key) ? row.at(key).get<std::string>() : "-";
}

// One column of the table: its heading, and a row's cell.
struct Column {
  const char* heading;
  std::function<std::string(const json&)> cell;
};

const std::vector<Column>& columns() {
  static const std::vector<Column> kColumns = {
      {"version", [](const json& row) { return word(row, "recipe"); }},
      {"scheme", [](const json& row) { return word(row, "scheme"); }},
      {"group", [](const json& row) { return word(row, "group"); }},
      {"activations", [](const json& row) { return word(row, "activations"); }},
      {"size", [](const json& row) { return size(row, "bytes"); }},
      {"bits/w",
       [](const json& row) {
         return number(row, "bits_per_weight", "{:.3f}");
       }},
      {"perplexity",
       [](const json& row) { return number(row, "perplexity", "{:.3f}"); }},
      {"mean KL",
       [](const json& row) { return number(row, "kl_mean", "{:.5f}"); }},
      {"top-1 %",
       [](const json& row) { return number(row, "top1", "{:.2f}", 100); }},
      {"prompt t/s",
       [](const json& row) {
         return number(row, "prompt_tokens_per_second", "{:.0f}");
       }},
      {"new t/s",
       [](const json& row) {
         return number(row, "generated_tokens_per_second", "{:.0f}");
       }},
      {"memory", [](const json& row) { return size(row, "peak_rss_bytes"); }},
      {"quantized in",
       [](const json& row) { return number(row, "seconds", "{:.2f} s"); }},
      {"with",
       [](const json& row) { return size(row, "quantize_peak_rss_bytes"); }}};
  return kColumns;
}

std::vector<std::string> headings() {
  std::vector<std::string> all;
  for (const Column& column : columns()) {
    all.emplace_back(column.heading);
  }
  return all;
}

std::vector<std::vector<std::string>> cells(const json& rows) {
  std::vector<std::vector<std::string>> all;
  for (const json& row : rows) {
    auto& line = all.emplace_back();
    for (const Column& column : columns()) {
      line.push_back(column.cell(row));
    }
  }
  return all;
}

// Size against a measure, of the rows that have it (and where it is positive:
// the axis is logarithmic).
std::string plot(const json& rows,
                 const char* key,
                 const std::string& id,
                 const std::string& title,
                 const std::string& label) {
  constexpr double kGiB = 1 << 30;
  double largest = 0;
  for (const json& row : rows) {
    largest = std::max(largest, row.at("bytes").get<double>());
  }
  const bool large = largest >= kGiB;
  std::vector<report::ScatterPoint> points;
  for (const json& row : rows) {
    if (!row.contains(key) || !(row.at(key).get<double>() > 0)) {
      continue;
    }
    const double unit = large ? kGiB : kGiB / 1024;
    points.push_back({word(row, "recipe"),
                      row.at("bytes").get<double>() / unit,
                      row.at(key).get<double>(),
                      fmt::format("{}: {}, {} {:.5g}",
                                  word(row, "recipe"),
                                  size(row, "bytes"),
                                  label,
                                  row.at(key).get<double>())});
  }
  if (points.empty()) {
    return "";
  }
  return report::text_element("h2", {}, title) +
         report::scatter_plot(id,
                              title,
                              title +
                                  ": one mark a version; the table below "
                                  "holds the figures.",
                              large ? "size of the tensors in GiB"
                                    : "size of the tensors in MiB",
                              label,
                              points);
}

}  // namespace

json scheme_columns(const std::filesystem::path& version) {
  const load::CheckpointDirectory directory = load::open_checkpoint(version);
  const auto quantized =
      quant::open_quantized(*directory.config, *directory.reader);
  if (quantized == nullptr) {
    return {{"scheme", dense_type(*directory.reader)}};
  }
  std::set<std::string> schemes;
  std::set<std::string> groups;
  std::set<std::string> activations;
  std::set<int> bits;
  for (const std::string& module : quantized->modules()) {
    const quant::LayerSpec spec = *quantized->spec_of(module);
    schemes.insert(spec.weight.symmetric ? spec.weight.scheme
                                         : spec.weight.scheme + " asymmetric");
    groups.insert(group_text(spec.weight));
    activations.insert(activations_text(spec));
    bits.insert(spec.weight.bits);
  }
  return {{"scheme", joined(schemes)},
          {"bits", bits},
          {"group", joined(groups)},
          {"activations", joined(activations)}};
}

std::string compare_text(const json& rows) {
  Table table(headings());
  for (std::vector<std::string>& line : cells(rows)) {
    table.add(std::move(line));
  }
  return table.text();
}

std::string compare_page(const std::string& model,
                         const std::string& text_file,
                         const json& rows) {
  using report::text_element;
  std::string body =
      text_element("h1", {}, model) +
      text_element("p",
                   {{"class", "soft"}},
                   "Quantized versions, measured on " + text_file + ".");
  body += plot(rows,
               "kl_mean",
               "kl",
               "Size against distance from the source",
               "mean KL divergence in nats");
  body += plot(rows,
               "perplexity",
               "perplexity",
               "Size against perplexity",
               "perplexity");
  body += text_element("h2", {}, "All figures") +
          report::table("", headings(), cells(rows)) +
          text_element("p",
                       {{"class", "soft"}},
                       "KL and top-1 compare the predictions with those of "
                       "the source. Speed and memory are those of this "
                       "machine: prompt and new tokens a second, the most "
                       "memory while generating.");
  return report::page(model + ": quantized versions", body);
}

}  // namespace nibble::cli
