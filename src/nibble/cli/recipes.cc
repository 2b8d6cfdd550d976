#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/cli/common/model_loader.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"
#include "nibble/cli/screen/table.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/plan/plan.h"
#include "nibble/quant/recipe/recipe.h"

namespace nibble::cli {
namespace {

struct Options {
  std::string recipe;
  std::string model;
  bool json = false;
  bool markdown = false;
};

int list(const Options& options) {
  nlohmann::json recipes = nlohmann::json::array();
  Table table({"recipe", "what it does"});
  for (const quant::BuiltinRecipe& recipe : quant::builtin_recipes()) {
    recipes.push_back(
        {{"name", recipe.name}, {"description", recipe.description}});
    table.add({std::string(recipe.name), std::string(recipe.description)});
  }
  if (options.json) {
    print_json({{"recipes", recipes}});
  } else {
    print(table.text());
  }
  return kDone;
}

int show(const Options& options) {
  for (const quant::BuiltinRecipe& recipe : quant::builtin_recipes()) {
    if (recipe.name == options.recipe) {
      print(recipe.json);
      print("\n");
      return kDone;
    }
  }
  // Not built in: a file or a text, shown with every default written out.
  print_json(quant::to_json(quant::load_recipe(options.recipe)));
  return kDone;
}

int check(const Options& options) {
  const quant::Recipe recipe = quant::load_recipe(options.recipe);
  nlohmann::json result = {{"ok", true}, {"rules", recipe.rules.size()}};
  std::string text =
      fmt::format("recipe: {} rules, nothing wrong\n", recipe.rules.size());
  if (!options.model.empty()) {
    const load::CheckpointDirectory source =
        load::open_checkpoint(options.model);
    const quant::Plan plan = quant::make_plan(source, recipe, {});
    std::size_t quantized = 0;
    for (const quant::PlannedLayer& layer : plan.layers) {
      quantized += layer.spec ? 1 : 0;
    }
    result["quantized"] = quantized;
    result["bits_per_weight"] = plan.bits_per_weight;
    text += fmt::format("{}: {} weights are quantized, {:.3f} bits a weight\n",
                        options.model,
                        quantized,
                        plan.bits_per_weight);
  }
  if (options.json) {
    print_json(result);
  } else {
    print(text);
  }
  return kDone;
}

int schemes(const Options& options) {
  nlohmann::json rows = nlohmann::json::array();
  Table table({"scheme", "group", "symmetric", "activations", "note"});
  for (const quant::Scheme* scheme : quant::schemes()) {
    for (const quant::SchemeRow& row : scheme->table()) {
      rows.push_back({{"scheme", row.scheme},
                      {"group", row.group},
                      {"symmetric", row.symmetric},
                      {"activations", row.activations},
                      {"note", row.note}});
      table.add(
          {row.scheme, row.group, row.symmetric, row.activations, row.note});
    }
  }
  if (options.json) {
    print_json({{"schemes", rows}});
  } else {
    print(options.markdown ? table.markdown() : table.text());
  }
  return kDone;
}

}  // namespace

void add_recipes(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& recipes =
      add_command(app,
                  session,
                  "recipes",
                  "Lists the built-in recipes; shows and checks recipes",
                  "nibble recipes show int4 > mine.json",
                  [options](Session&) { return list(*options); });
  recipes.require_subcommand(0, 1);
  recipes.add_flag("--json", options->json, "One JSON document");

  CLI::App& shown = add_command(recipes,
                                session,
                                "show",
                                "Prints a recipe as JSON to start from",
                                "nibble recipes show int4-g64",
                                [options](Session&) { return show(*options); });
  shown.add_option("recipe", options->recipe, "Name, file or JSON")
      ->required()
      ->type_name("RECIPE");

  CLI::App& checked =
      add_command(recipes,
                  session,
                  "check",
                  "Says whether a recipe is right, alone or for a model",
                  "nibble recipes check mine.json --model models/fable-moe",
                  [options](Session&) {
                    if (!options->model.empty()) {
                      resolve(options->model);
                    }
                    return check(*options);
                  });
  checked.add_option("recipe", options->recipe, "Name, file or JSON")
      ->required()
      ->type_name("RECIPE");
  checked.add_option("--model", options->model, "Model that it is meant for")
      ->type_name("DIR");

  CLI::App& table =
      add_command(recipes,
                  session,
                  "schemes",
                  "Lists the number schemes that rules can name",
                  "nibble recipes schemes --markdown",
                  [options](Session&) { return schemes(*options); });
  table.add_flag("--markdown", options->markdown, "As docs/quantize.md has it");
}

}  // namespace nibble::cli
