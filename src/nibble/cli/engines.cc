#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"
#include "nibble/cli/screen/table.h"
#include "nibble/quant/engines/rules.h"

namespace nibble::cli {
namespace {

using nlohmann::json;

struct Options {
  std::vector<std::string> names;
  bool json = false;
  bool markdown = false;
};

bool wanted(const Options& options, std::string_view engine) {
  if (options.names.empty()) {
    return true;
  }
  for (const std::string& name : options.names) {
    if (quant::engine_named(name).engine == engine) {
      return true;
    }
  }
  return false;
}

// "experts of llama4", "linears q_proj, k_proj".
std::string module_text(const quant::EngineRule& rule) {
  std::string text(quant::module_kind_name(rule.kind));
  for (std::size_t i = 0; i < rule.names.size(); ++i) {
    text += (i == 0 ? " " : ", ") + std::string(rule.names[i]);
  }
  if (!rule.family.empty()) {
    text += " of " + std::string(rule.family);
  }
  return text;
}

// What a layer needs, and why the answer is what it is.
std::string remark(const quant::EngineRule& rule) {
  std::string text;
  const auto add = [&](std::string_view more) {
    text += text.empty() || more.empty() ? "" : "; ";
    text += more;
  };
  add(rule.needs);
  if (rule.rows_multiple > 1 || rule.columns_multiple > 1) {
    add(fmt::format("rows x columns in multiples of {} x {}",
                    rule.rows_multiple,
                    rule.columns_multiple));
  }
  add(rule.note);
  return text;
}

std::string cuts_text(const quant::EngineCuts& engine) {
  if (!engine.known) {
    return std::string(engine.note);
  }
  return fmt::format(
      "heads divide; heads of keys and values divide{}; the vocabulary {}; "
      "quantized parts end at whole groups, blocks and words",
      engine.repeats_kv_heads ? " or are repeated" : "",
      engine.vocabulary_padding > 0
          ? fmt::format("is padded to {}", engine.vocabulary_padding)
          : "divides");
}

json to_json(const Options& options) {
  json rules = json::array();
  for (const quant::EngineRule& rule : quant::engine_rules()) {
    if (wanted(options, rule.engine)) {
      rules.push_back({{"engine", rule.engine},
                       {"modules", module_text(rule)},
                       {"form", describe(rule)},
                       {"verdict", verdict_name(rule.verdict)},
                       {"rows_multiple", rule.rows_multiple},
                       {"columns_multiple", rule.columns_multiple},
                       {"needs", rule.needs},
                       {"note", rule.note},
                       {"source", rule.source}});
    }
  }
  json engines = json::array();
  for (const quant::EngineCuts& engine : quant::engines()) {
    if (wanted(options, engine.engine)) {
      engines.push_back({{"engine", engine.engine},
                         {"cuts_known", engine.known},
                         {"cuts", cuts_text(engine)},
                         {"most_schemes", engine.most_schemes},
                         {"source", engine.source}});
    }
  }
  json sources = json::array();
  for (const quant::EngineSource& source : quant::engine_sources()) {
    sources.push_back({{"key", source.key},
                       {"document", source.document},
                       {"version", source.version}});
  }
  return {{"rules", std::move(rules)},
          {"engines", std::move(engines)},
          {"sources", std::move(sources)}};
}

std::string to_text(const Options& options) {
  Table rules({"engine", "layers", "form", "verdict", "remark", "source"});
  for (const quant::EngineRule& rule : quant::engine_rules()) {
    if (wanted(options, rule.engine)) {
      rules.add({std::string(rule.engine),
                 module_text(rule),
                 describe(rule),
                 std::string(verdict_name(rule.verdict)),
                 remark(rule),
                 std::string(rule.source)});
    }
  }
  Table cuts(
      {"engine", "cuts over ranks", "schemes in one checkpoint", "source"});
  for (const quant::EngineCuts& engine : quant::engines()) {
    if (wanted(options, engine.engine)) {
      cuts.add({std::string(engine.engine),
                cuts_text(engine),
                engine.most_schemes == 0 ? "any"
                                         : std::to_string(engine.most_schemes),
                std::string(engine.source)});
    }
  }
  Table sources({"source", "what was read", "version"});
  for (const quant::EngineSource& source : quant::engine_sources()) {
    sources.add({std::string(source.key),
                 std::string(source.document),
                 std::string(source.version)});
  }
  std::string text;
  for (const Table* table : {&rules, &cuts, &sources}) {
    text += (text.empty() ? "" : "\n") +
            (options.markdown ? table->markdown() : table->text());
  }
  return text;
}

int engines(const Options& options) {
  if (options.json) {
    print_json(to_json(options));
  } else {
    print(to_text(options));
  }
  return kDone;
}

}  // namespace

void add_engines(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command =
      add_command(app,
                  session,
                  "engines",
                  "Lists what serving engines accept, and where that stands",
                  "nibble engines vllm",
                  [options](Session&) { return engines(*options); });
  command.add_option("names", options->names, "Engines (all)")
      ->type_name("ENGINE");
  command.add_flag(
      "--markdown", options->markdown, "As docs/engines.md has it");
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
