// Reading and writing recipes, and every way in which one can be wrong.
#include "nibble/quant/recipe/recipe.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/quant/recipe/keys.h"
#include "temporary_directory.h"

namespace nibble::quant {
namespace {

using nlohmann::json;

// The only rule of a recipe with this rule.
Rule rule_of(const std::string& rule) {
  return load_recipe(R"({"version": 1, "rules": [)" + rule + "]}").rules.at(0);
}

std::string meaning(const std::string& rule) {
  const Rule read = rule_of(rule);
  return read.spec ? describe(*read.spec) : "keep";
}

TEST(Recipe, TheLeastRecipeIsRead) {
  const Recipe recipe = load_recipe(
      R"({"version": 1,
          "rules": [{"match": "*", "scheme": "int4", "group": 64}]})");
  EXPECT_EQ(recipe.name, "");
  EXPECT_TRUE(recipe.defaults);
  ASSERT_EQ(recipe.rules.size(), 1U);
  const Rule& rule = recipe.rules[0];
  EXPECT_EQ(rule.match, std::vector<std::string>{"*"});
  EXPECT_EQ(describe(*rule.spec), "int4 group 64");
  EXPECT_EQ(rule.algorithm, "rtn");
  EXPECT_EQ(rule.on_indivisible, OnIndivisible::kError);
}

TEST(Recipe, ValuesOfARuleMeanWhatTheTableSays) {
  EXPECT_EQ(meaning(R"({"match": "*", "scheme": "int4"})"), "int4 group 128");
  EXPECT_EQ(meaning(R"({"match": "*", "scheme": "int8"})"), "int8 channel");
  EXPECT_EQ(meaning(R"({"match": "*", "scheme": "fp8"})"), "fp8 channel");
  EXPECT_EQ(meaning(R"({"match": "*", "scheme": "keep"})"), "keep");
  EXPECT_EQ(
      meaning(
          R"({"match": "*", "scheme": "int4", "group": 32, "symmetric": false})"),
      "int4 group 32 asymmetric");
  EXPECT_EQ(meaning(R"({"match": "*", "scheme": "int4", "group": "channel"})"),
            "int4 channel");
  EXPECT_EQ(meaning(R"({"match": "*", "scheme": "fp8", "group": "tensor"})"),
            "fp8 tensor");
  EXPECT_EQ(
      meaning(R"({"match": "*", "scheme": "int8", "activations": "dynamic"})"),
      "int8 channel, int8 token inputs");
  EXPECT_EQ(meaning(
                R"({"match": "*", "scheme": "fp8", "group": [128, 128],
              "activations": "dynamic"})"),
            "fp8 block 128x128, fp8 group 128 inputs");
  EXPECT_EQ(
      meaning(R"({"match": "*", "scheme": "fp8", "activations": "static"})"),
      "fp8 channel, fp8 tensor inputs static");
  const Rule rule = rule_of(
      R"({"match": ["a", "b.*"], "scheme": "int8",
          "on_indivisible": "smaller"})");
  EXPECT_EQ(rule.match, (std::vector<std::string>{"a", "b.*"}));
  EXPECT_EQ(rule.on_indivisible, OnIndivisible::kSmaller);
}

TEST(Recipe, EveryBuiltinIsReadAndNamed) {
  const std::vector<std::pair<std::string, std::string>> kWanted = {
      {"int4", "int4 group 128"},
      {"int4-g64", "int4 group 64"},
      {"int4-g32", "int4 group 32"},
      {"int4-asym", "int4 group 64 asymmetric"},
      {"int8", "int8 channel"},
      {"int8-w8a8", "int8 channel, int8 token inputs"},
      {"fp8", "fp8 channel, fp8 token inputs"},
      {"fp8-block", "fp8 block 128x128, fp8 group 128 inputs"},
      {"fp8-a16", "fp8 channel"},
      {"llama4-int4", "int4 group 128"}};
  ASSERT_EQ(builtin_recipes().size(), kWanted.size());
  for (std::size_t i = 0; i < kWanted.size(); ++i) {
    const auto& [name, spec] = kWanted[i];
    SCOPED_TRACE(name);
    EXPECT_EQ(builtin_recipes()[i].name, name);
    const Recipe recipe = load_recipe(name);
    EXPECT_EQ(recipe.name, name);
    EXPECT_EQ(recipe.description, builtin_recipes()[i].description);
    EXPECT_TRUE(recipe.defaults);
    ASSERT_EQ(recipe.rules.size(), 1U);
    EXPECT_EQ(describe(*recipe.rules[0].spec), spec);
  }
}

// The canonical form: every default stands in it, and it reads back as itself.
TEST(Recipe, TheCanonicalFormReadsBackAsItself) {
  const Recipe recipe = load_recipe(
      R"({"version": 1, "defaults": false, "rules": [
          {"match": "re:.*router", "scheme": "keep"},
          {"match": "*", "scheme": "int4"}]})");
  const json written = to_json(recipe);
  EXPECT_EQ(written, json::parse(R"({
    "version": 1, "name": "", "description": "", "defaults": false, "rules": [
      {"match": ["re:.*router"], "scheme": "keep", "optional": false},
      {"match": ["*"], "scheme": "int4", "symmetric": true, "group": 128,
       "activations": "none", "algorithm": "rtn",
       "on_indivisible": "error", "optional": false, "force": false}]})"));
  EXPECT_EQ(to_json(parse_recipe(written)), written);
  for (const BuiltinRecipe& builtin : builtin_recipes()) {
    const json form = to_json(load_recipe(builtin.name));
    EXPECT_EQ(to_json(parse_recipe(form)), form);
  }
}

TEST(Recipe, AFileIsReadByItsPathAndGivesItsName) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "mine.json";
  std::ofstream(path) << R"({"version": 1,
                             "rules": [{"match": "*", "scheme": "int8"}]})";
  EXPECT_EQ(load_recipe(path.string()).name, "mine");
  expect_error(ErrorCode::kNotFound, "absent.json", [&] {
    static_cast<void>(load_recipe((directory.path() / "absent.json").string()));
  });
}

// A name is a name wherever the program runs: no look at the file system.
TEST(Recipe, AnUnknownNameIsRefusedWithTheNearest) {
  expect_error(ErrorCode::kBadRecipe, "did you mean int4-g64?", [] {
    static_cast<void>(load_recipe("int4-g46"));
  });
  expect_error(ErrorCode::kBadRecipe, "begins with {", [] {
    static_cast<void>(load_recipe("zzzzzzzzzzz"));
  });
}

struct Wrong {
  std::string text;
  std::string message;
};

void expect_wrong(const std::vector<Wrong>& cases) {
  for (const Wrong& each : cases) {
    SCOPED_TRACE(each.text);
    expect_error(ErrorCode::kBadRecipe, each.message, [&] {
      static_cast<void>(load_recipe(each.text));
    });
  }
}

TEST(Recipe, WrongRecipesAreRefusedWithTheNearestRightWord) {
  const std::string rules = R"("rules": [{"match": "*", "scheme": "int4"}])";
  expect_wrong({
      {"{", "recipe: line 1, column 2"},
      {"{\"version\": 1,\n\"rules\": [}", "line 2, column 11"},
      {"{" + rules + "}", "add \"version\": 1"},
      {"{\"version\": 1}", "found no key rules"},
      {"{\"version\": 2, " + rules + "}", "version: found 2, expected 1"},
      {"{\"version\": \"1\", " + rules + "}", "version: found \"1\""},
      {"{\"version\": 1.0, " + rules + "}", "version: found 1.0"},
      {"{\"version\": 1, \"versoin\": 1, " + rules + "}",
       "did you mean version?"},
      {"{\"version\": 1, \"scheme\": \"int4\", " + rules + "}",
       "scheme belongs into a rule"},
      {"{\"version\": 1, \"defaults\": 1, " + rules + "}",
       "defaults: found 1, expected true or false"},
      {"{\"version\": 1, \"name\": 7, " + rules + "}",
       "name: found 7, expected a string"},
      {"{\"version\": 1, \"rules\": []}", "rules: found []"},
      {"{\"version\": 1, \"rules\": {}}", "rules: found {}"},
      {"{\"version\": 1, \"rules\": [7]}", "rules[0]: found a JSON number"},
      {"{\"version\": 1, \"version\": 1, " + rules + "}",
       "the key 'version' twice"},
      {"{\"version\": 1, \"name\": \"\xFF\", " + rules + "}", "JSON"},
  });
}

TEST(Recipe, WrongRulesAreRefusedWithTheNearestRightWord) {
  const auto rule = [](const std::string& fields) {
    return "{\"version\": 1, \"rules\": [{\"match\": \"a\", \"scheme\": "
           "\"keep\"}, {" +
           fields + "}]}";
  };
  const std::string int4 = R"("match": "*", "scheme": "int4", )";
  expect_wrong({
      {rule(R"("scheme": "int4")"), "rules[1]: found no key match"},
      {rule(R"("match": "*")"), "rules[1]: found no key scheme"},
      {rule(R"("match": "", "scheme": "int4")"), "rules[1].match: found \"\""},
      {rule(R"("match": [], "scheme": "int4")"), "at least one pattern"},
      {rule(R"("match": ["a", 1], "scheme": "int4")"), "rules[1].match"},
      {rule(R"("match": "re:((", "scheme": "int4")"),
       "rules[1].match: regular expression"},
      {rule(R"("match": "*", "scheme": "int44")"), "did you mean int4?"},
      {rule(R"("match": "*", "scheme": 4)"), "rules[1].scheme: found 4"},
      {rule(int4 + R"("grup": 64)"), "did you mean group?"},
      {rule(int4 + R"("defaults": true)"), "defaults belongs beside rules"},
      {rule(int4 + R"("group": 100)"), "did you mean 128?"},
      {rule(int4 + R"("group": -1)"), "did you mean 32?"},
      {rule(int4 + R"("group": 18446744073709551615)"), "group: found"},
      {rule(int4 + R"("group": 64.0)"), "group: found 64.0"},
      {rule(int4 + R"("group": "chanel")"), "did you mean channel?"},
      {rule(int4 + R"("group": [64, 64])"), "group: found [64,64]"},
      {rule(int4 + R"("group": null)"), "group: found null"},
      {rule(int4 + R"("symmetric": "no")"), "symmetric: found \"no\""},
      {rule(int4 + R"("activations": "dynamc")"), "did you mean dynamic?"},
      {rule(int4 + R"("algorithm": "rtm")"), "did you mean rtn?"},
      {rule(int4 + R"("on_indivisible": "small")"), "on_indivisible: found"},
      {rule(R"("match": "*", "scheme": "keep", "group": 64)"),
       "the key group in a rule that keeps"},
      {rule(R"("match": "*", "scheme": "int8", "force": 1)"),
       "force: found 1, expected true or false"},
      {rule(R"("match": "*", "scheme": "keep", "force": true)"),
       "found the key force in a rule that keeps"},
      {rule(R"("match": "*", "scheme": "keep", "optional": 1)"),
       "optional: found 1, expected true or false"},
      {rule(R"("match": "*", "scheme": "fp8", "symmetric": false)"),
       "rules[1]: "},
      {rule(int4 + R"("group": [128, 128])"), "rules[1]: "},
  });
}

TEST(Patterns, FitExactNamesGlobsAndExpressions) {
  const std::string name = "model.layers.0.mlp.up_proj";
  EXPECT_TRUE(pattern_fits(name, name));
  EXPECT_FALSE(pattern_fits("up_proj", name));
  EXPECT_TRUE(pattern_fits("*.up_proj", name));
  EXPECT_TRUE(pattern_fits("*", name));
  EXPECT_TRUE(pattern_fits("model.layers.?.mlp.*", name));
  EXPECT_FALSE(pattern_fits("model.layers.?.mlp.*", "model.layers.10.mlp.x"));
  EXPECT_TRUE(pattern_fits("*a*b*", "xxaxxbxx"));
  EXPECT_FALSE(pattern_fits("*a*b", "xxbxxaxx"));
  EXPECT_TRUE(pattern_fits("a**", "a"));
  EXPECT_FALSE(pattern_fits("?", ""));
  EXPECT_TRUE(pattern_fits("*ab", "aab"));
  EXPECT_TRUE(pattern_fits(R"(re:.*\.(up|down)_proj)", name));
  EXPECT_FALSE(pattern_fits("re:model", name)) << "the whole name must fit";
  // Brackets mean nothing in a glob.
  EXPECT_FALSE(pattern_fits("[m]odel", "model"));
  EXPECT_THROW(static_cast<void>(pattern_fits("", name)), Error);
  EXPECT_THROW(static_cast<void>(pattern_fits("re:[", name)), Error);
}

// A glob of many stars is no way to stop the program.
TEST(Patterns, AGlobOfManyStarsIsQuick) {
  std::string glob;
  for (int i = 0; i < 200; ++i) {
    glob += "*a";
  }
  EXPECT_FALSE(pattern_fits(glob + "b", std::string(2000, 'a')));
}

}  // namespace
}  // namespace nibble::quant
