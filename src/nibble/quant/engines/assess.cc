#include "nibble/quant/engines/assess.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "nibble/base/error.h"

namespace nibble::quant {
namespace {

constexpr std::string_view kKnownFormat = "compressed_tensors";

std::string document_of(std::string_view key) {
  for (const EngineSource& source : engine_sources()) {
    if (source.key == key) {
      return fmt::format("{}, {}", source.document, source.version);
    }
  }
  return {};
}

const EngineRule* rule_for(std::string_view engine,
                           const ModelFacts& model,
                           const LayerFacts& layer) {
  for (const EngineRule& rule : engine_rules()) {
    if (rule.engine == engine &&
        fits(rule, model.family, layer.module, layer.role, *layer.spec)) {
      return &rule;
    }
  }
  return nullptr;
}

// What the engine accepts for layers of this kind, for refusals.
std::string accepted_forms(std::string_view engine,
                           const ModelFacts& model,
                           ModuleKind kind) {
  std::string forms;
  for (const EngineRule& rule : engine_rules()) {
    if (rule.engine == engine && rule.kind == kind &&
        rule.verdict == Verdict::kAccepted && rule.names.empty() &&
        (rule.family.empty() || rule.family == model.family)) {
      forms += (forms.empty() ? "" : "; or ") + describe(rule);
    }
  }
  return forms.empty() ? "a dense one" : forms;
}

EngineFinding finding_for(const EngineCuts& engine,
                          const ModelFacts& model,
                          const LayerFacts& layer) {
  EngineFinding finding;
  finding.layers = 1;
  finding.module = layer.module;
  finding.scheme = describe(*layer.spec);
  const EngineRule* rule = rule_for(engine.engine, model, layer);
  if (rule == nullptr) {
    finding.reason = "nothing that was read speaks of it";
    return finding;
  }
  finding.verdict = rule->verdict;
  finding.reason = rule->note;
  finding.needs = rule->needs;
  finding.source = document_of(rule->source);
  if (rule->verdict == Verdict::kAccepted &&
      (layer.rows % rule->rows_multiple != 0 ||
       layer.columns % rule->columns_multiple != 0)) {
    finding.verdict = rule->misaligned;
    finding.reason = fmt::format("{} x {} is no multiple of {} x {}: {}",
                                 layer.rows,
                                 layer.columns,
                                 rule->rows_multiple,
                                 rule->columns_multiple,
                                 rule->note);
    finding.expected = fmt::format("rows in multiples of {}, columns of {}",
                                   rule->rows_multiple,
                                   rule->columns_multiple);
  }
  if (finding.verdict == Verdict::kRefused && finding.expected.empty()) {
    finding.expected =
        accepted_forms(engine.engine, model, module_kind_of(layer.role));
  }
  return finding;
}

// Layers that get the same answer become one finding.
void add(std::vector<EngineFinding>& findings, EngineFinding one) {
  const auto same =
      std::find_if(findings.begin(), findings.end(), [&](const auto& other) {
        return other.verdict == one.verdict && other.scheme == one.scheme &&
               other.reason == one.reason && other.source == one.source;
      });
  if (same == findings.end()) {
    findings.push_back(std::move(one));
  } else {
    same->layers += one.layers;
  }
}

void check_scheme_count(const EngineCuts& engine,
                        const ModelFacts& model,
                        std::vector<EngineFinding>& findings) {
  std::set<std::string> schemes;
  for (const LayerFacts& layer : model.layers) {
    if (layer.spec != nullptr) {
      schemes.insert(describe(*layer.spec));
    }
  }
  if (engine.most_schemes == 0 ||
      schemes.size() <= static_cast<std::size_t>(engine.most_schemes)) {
    return;
  }
  EngineFinding finding;
  finding.verdict = Verdict::kRefused;
  finding.layers = model.layers.size();
  finding.module = "config.json";
  finding.scheme = fmt::format("{}", fmt::join(schemes, " and "));
  finding.reason =
      fmt::format("it reads checkpoints of {} scheme", engine.most_schemes);
  finding.expected = "the same scheme for all quantized layers";
  finding.source = document_of(engine.scheme_source);
  findings.push_back(std::move(finding));
}

}  // namespace

EngineReport assess(const EngineCuts& engine, const ModelFacts& model) {
  EngineReport report;
  report.engine = engine.engine;
  if (model.format != kKnownFormat) {
    EngineFinding finding;
    finding.layers = model.layers.size();
    finding.scheme = model.format;
    finding.reason = "nothing that was read speaks of this layout";
    report.findings.push_back(std::move(finding));
  } else {
    for (const LayerFacts& layer : model.layers) {
      if (layer.spec != nullptr) {
        add(report.findings, finding_for(engine, model, layer));
      }
    }
    check_scheme_count(engine, model, report.findings);
  }
  std::stable_sort(
      report.findings.begin(),
      report.findings.end(),
      [](const auto& a, const auto& b) { return a.verdict > b.verdict; });
  if (!report.findings.empty()) {
    report.verdict = report.findings.front().verdict;
  }
  return report;
}

void refuse_unless_accepted(std::span<const std::string> engine_names,
                            const ModelFacts& model) {
  for (const std::string& name : engine_names) {
    const EngineReport report = assess(engine_named(name), model);
    if (report.verdict != Verdict::kRefused) {
      continue;
    }
    const EngineFinding& worst = report.findings.front();
    fail_with_hint(
        ErrorCode::kUnsupported,
        "keep such layers dense or give them a scheme that it accepts (nibble "
        "engines lists them), or leave --for out",
        "module {}: found {}, which {} refuses ({}; {} such layers), expected "
        "{}",
        printable(worst.module),
        worst.scheme,
        name,
        worst.reason,
        worst.layers,
        worst.expected);
  }
}

}  // namespace nibble::quant
