#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "nibble/base/units.h"
#include "nibble/report/html.h"
#include "nibble/report/model_report.h"

namespace nibble::report {
namespace {

constexpr std::size_t kWorst = 10;
// Marks beside each other that the error plot has room for.
constexpr int kMostPlaces = 160;

std::string card(const std::string& value, const std::string& label) {
  return element(
      "div",
      {{"class", "card"}},
      text_element("b", {}, value) + text_element("span", {}, label));
}

std::string error_text(double error) {
  return fmt::format("{:.3e}", error);
}

double mean_error(const std::vector<LayerFigures>& layers) {
  double sum = 0;
  double weights = 0;
  for (const LayerFigures& layer : layers) {
    const auto weight =
        static_cast<double>(std::max<std::int64_t>(layer.parameters, 1));
    sum += layer.relative_mse * weight;
    weights += weight;
  }
  return weights > 0 ? sum / weights : 0;
}

std::string header(const ModelReport& report) {
  std::string text = text_element("h1", {}, report.name);
  std::string about = report.format;
  if (!report.family.empty()) {
    about = "Family " + report.family + ", " + about;
  }
  if (report.receipt) {
    const ReceiptSummary& receipt = *report.receipt;
    about += fmt::format("; made by {} from {}{}",
                         receipt.program,
                         receipt.source,
                         receipt.recipe_name.empty()
                             ? ""
                             : " with the recipe " + receipt.recipe_name);
  }
  return text + text_element("p", {{"class", "soft"}}, about + ".");
}

std::string cards(const ModelReport& report) {
  std::string text = card(format_size(report.bytes), "of tensors");
  text += card(fmt::format("{:.3f}", report.bits_per_weight), "bits a weight");
  if (report.receipt && report.bytes > 0) {
    text += card(fmt::format("{:.2f} x",
                             static_cast<double>(report.receipt->source_bytes) /
                                 static_cast<double>(report.bytes)),
                 "smaller than the source's " +
                     format_size(report.receipt->source_bytes));
  }
  if (!report.layers.empty()) {
    text += card(std::to_string(report.layers.size()), "quantized matrices");
    text += card(error_text(mean_error(report.layers)),
                 "mean relative squared error");
    text += card(
        format_seconds(report.receipt->seconds),
        "with " + format_size(report.receipt->peak_rss_bytes) + " of memory");
  }
  return element("div", {{"class", "cards"}}, text) + "\n";
}

// Errors of one kind at one place: a layer, or some neighbours.
struct Cell {
  int first_layer = 0;
  int last_layer = 0;
  std::vector<double> errors;
};

using Cells = std::map<std::string, std::map<int, Cell>>;

Cells cells_of(const std::vector<LayerFigures>& layers) {
  int last = 0;
  for (const LayerFigures& layer : layers) {
    last = std::max(last, layer.layer);
  }
  const int width = last / kMostPlaces + 1;
  Cells cells;
  for (const LayerFigures& layer : layers) {
    // A logarithmic scale has no place for an error of nothing.
    if (layer.layer < 0 || !(layer.relative_mse > 0)) {
      continue;
    }
    Cell& cell = cells[layer.kind][layer.layer / width];
    cell.first_layer = cell.errors.empty()
                           ? layer.layer
                           : std::min(cell.first_layer, layer.layer);
    cell.last_layer = std::max(cell.last_layer, layer.layer);
    cell.errors.push_back(layer.relative_mse);
  }
  for (auto& [kind, places] : cells) {
    for (auto& [place, cell] : places) {
      std::sort(cell.errors.begin(), cell.errors.end());
    }
  }
  return cells;
}

std::string layers_text(const Cell& cell) {
  return cell.first_layer == cell.last_layer
             ? std::to_string(cell.first_layer)
             : fmt::format("{}-{}", cell.first_layer, cell.last_layer);
}

std::string error_section(const ModelReport& report) {
  if (report.layers.empty()) {
    return text_element("h2", {}, "Error by layer and kind") +
           text_element("p",
                        {{"class", "note"}},
                        report.receipt
                            ? "Nothing is quantized: there is no error."
                            : "Errors are not known: no nibble.json stands "
                              "beside these weights. nibble verify --source "
                              "measures them from the original.");
  }
  std::vector<StripSeries> series;
  std::vector<std::vector<std::string>> rows;
  for (const auto& [kind, places] : cells_of(report.layers)) {
    StripSeries one;
    one.name = kind;
    for (const auto& [place, cell] : places) {
      StripMark mark;
      mark.x = 0.5 * (cell.first_layer + cell.last_layer);
      mark.low = cell.errors.front();
      mark.middle = cell.errors[cell.errors.size() / 2];
      mark.high = cell.errors.back();
      mark.title = fmt::format("{}, layer {}: {} matrices, median {}",
                               kind,
                               layers_text(cell),
                               cell.errors.size(),
                               error_text(mark.middle));
      one.marks.push_back(mark);
      rows.push_back({kind,
                      layers_text(cell),
                      std::to_string(cell.errors.size()),
                      error_text(mark.low),
                      error_text(mark.middle),
                      error_text(mark.high)});
    }
    series.push_back(std::move(one));
  }
  std::string text =
      text_element("h2", {}, "Error by layer and kind") +
      text_element("p",
                   {{"class", "soft"}},
                   "Squared error of a matrix over the squares of its "
                   "weights; a bar spans the matrices of a kind in a layer, "
                   "the mark is their median.");
  if (!series.empty()) {
    text += strip_plot("errors",
                       "Error by layer and kind",
                       "Relative squared error of the quantized matrices by "
                       "decoder layer; the table below holds the figures.",
                       "layer",
                       "relative squared error",
                       series);
  }
  for (const LayerFigures& layer : report.layers) {
    if (layer.layer < 0) {
      rows.push_back({layer.name,
                      "-",
                      "1",
                      error_text(layer.relative_mse),
                      error_text(layer.relative_mse),
                      error_text(layer.relative_mse)});
    }
  }
  return text +
         folded("The figures as a table",
                table("",
                      {"kind", "layer", "matrices", "least", "median", "most"},
                      rows));
}

std::string worst_section(const ModelReport& report) {
  if (report.layers.empty()) {
    return "";
  }
  std::vector<const LayerFigures*> worst;
  for (const LayerFigures& layer : report.layers) {
    worst.push_back(&layer);
  }
  std::stable_sort(
      worst.begin(), worst.end(), [](const auto* a, const auto* b) {
        return a->relative_mse > b->relative_mse;
      });
  worst.resize(std::min(worst.size(), kWorst));
  std::vector<std::vector<std::string>> rows;
  for (const LayerFigures* layer : worst) {
    rows.push_back({layer->name,
                    layer->scheme,
                    error_text(layer->relative_mse),
                    fmt::format("{:.6f}", layer->cosine),
                    error_text(layer->max_abs)});
  }
  return text_element("h2",
                      {},
                      worst.size() == 1
                          ? std::string("The matrix with an error")
                          : fmt::format("The {} matrices that lost most",
                                        worst.size())) +
         table("",
               {"matrix", "scheme", "relative error", "cosine", "largest"},
               rows);
}

std::string size_section(const ModelReport& report) {
  std::vector<Bar> bars;
  std::vector<std::vector<std::string>> rows;
  for (const KindSize& size : report.sizes) {
    const double bits = size.parameters == 0
                            ? 0
                            : 8 * static_cast<double>(size.bytes) /
                                  static_cast<double>(size.parameters);
    bars.push_back(
        {size.kind,
         static_cast<double>(size.bytes),
         2 * static_cast<double>(size.parameters),
         fmt::format("{}, {:.2f} bits", format_size(size.bytes), bits)});
    rows.push_back({size.kind,
                    size.scheme.empty() ? "dense" : size.scheme,
                    std::to_string(size.matrices),
                    format_size(size.bytes),
                    fmt::format("{:.2f}", bits),
                    report.bytes == 0
                        ? "-"
                        : fmt::format("{:.1f} %",
                                      100 * static_cast<double>(size.bytes) /
                                          static_cast<double>(report.bytes))});
  }
  return text_element("h2", {}, "Size by kind") +
         text_element("p",
                      {{"class", "soft"}},
                      "What each kind of tensor takes; the pale bar is the "
                      "same weights in 16 bits.") +
         bar_chart("sizes",
                   "Size by kind",
                   "Bytes of each kind of tensor beside the same weights in "
                   "16 bits; the table below holds the figures.",
                   bars) +
         folded("The figures as a table",
                table("",
                      {"kind", "scheme", "tensors", "size", "bits", "share"},
                      rows));
}

std::string scale_section(const ModelReport& report) {
  if (report.scales.empty()) {
    return "";
  }
  std::vector<Histogram> plots;
  std::vector<std::vector<std::string>> rows;
  std::uint64_t unusable = 0;
  for (const ScaleFigures& scale : report.scales) {
    if (scale.count > 0) {
      plots.push_back(scale.histogram);
    }
    unusable += scale.unusable;
    rows.push_back({scale.kind,
                    scale.scheme,
                    std::to_string(scale.count),
                    fmt::format("{:.3e}", scale.smallest),
                    fmt::format("{:.3e}", scale.median),
                    fmt::format("{:.3e}", scale.largest)});
  }
  std::string text =
      text_element("h2", {}, "Scales") +
      text_element("p",
                   {{"class", "soft"}},
                   "How often each size of scale occurs. Lone bars far from "
                   "the rest are outliers that cost accuracy.");
  if (unusable > 0) {
    text += text_element(
        "p",
        {{"class", "note"}},
        fmt::format("{} scales are zero, negative or not finite.", unusable));
  }
  if (!plots.empty()) {
    text += histograms("scales",
                       "Scales",
                       "Histogram of the scales of each kind of matrix; the "
                       "table below holds the figures.",
                       "scale",
                       plots);
  }
  return text +
         folded(
             "The figures as a table",
             table(
                 "",
                 {"kind", "scheme", "scales", "smallest", "median", "largest"},
                 rows));
}

std::string receipt_section(const ModelReport& report) {
  if (!report.receipt) {
    return "";
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [fate, count] : report.receipt->fates) {
    rows.push_back({fate, std::to_string(count)});
  }
  return text_element("h2", {}, "What became of the source's tensors") +
         table("", {"fate", "tensors"}, rows) +
         folded("The recipe, every default written out",
                text_element("pre", {}, report.receipt->recipe));
}

}  // namespace

std::string render(const ModelReport& report) {
  return page(report.name + ": quantization report",
              header(report) + cards(report) + error_section(report) +
                  worst_section(report) + size_section(report) +
                  scale_section(report) + receipt_section(report));
}

}  // namespace nibble::report
