// Which linear becomes what, and the recipes that do not fit a model.
#include "nibble/quant/recipe/resolve.h"

#include <array>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble::quant {
namespace {

using model::Role;

constexpr std::array<std::string_view, 3> kQkv = {"q_proj", "k_proj", "v_proj"};
constexpr std::array<std::string_view, 2> kGateUp = {"gate_proj", "up_proj"};
constexpr std::array<std::span<const std::string_view>, 2> kFused = {kQkv,
                                                                     kGateUp};
constexpr std::array<Role, 2> kKeep = {Role::kHead, Role::kRouter};

model::Family family() {
  model::Family family;
  family.name = "test";
  family.keep_dense = kKeep;
  family.fused = kFused;
  return family;
}

struct Sizes {
  std::int64_t hidden = 256;
  std::int64_t intermediate = 512;
  std::int64_t expert = 256;
};

// Layer 0 is dense, layer 1 has a router and two experts.
std::vector<LinearModule> model_of(const Sizes& sizes = {}) {
  std::vector<LinearModule> linears;
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      linears.push_back({layer + "self_attn." + name,
                         Role::kAttention,
                         sizes.hidden,
                         sizes.hidden});
    }
  }
  const auto mlp = [&](const std::string& prefix, Role role, std::int64_t mid) {
    linears.push_back({prefix + "gate_proj", role, mid, sizes.hidden});
    linears.push_back({prefix + "up_proj", role, mid, sizes.hidden});
    linears.push_back({prefix + "down_proj", role, sizes.hidden, mid});
  };
  mlp("model.layers.0.mlp.", Role::kMlp, sizes.intermediate);
  mlp("model.layers.1.mlp.experts.0.", Role::kExpert, sizes.expert);
  mlp("model.layers.1.mlp.experts.1.", Role::kExpert, sizes.expert);
  linears.push_back(
      {"model.layers.1.mlp.gate", Role::kRouter, 2, sizes.hidden});
  linears.push_back({"lm_head", Role::kHead, 1000, sizes.hidden});
  return linears;
}

Recipe recipe(const std::string& rules, const std::string& more = "") {
  return load_recipe("{\"version\": 1, " + more + "\"rules\": [" + rules +
                     "]}");
}

std::map<std::string, Decision> decide(const Recipe& recipe,
                                       const Sizes& sizes = {}) {
  const std::vector<LinearModule> linears = model_of(sizes);
  const std::vector<Decision> decisions = resolve(recipe, family(), linears);
  std::map<std::string, Decision> named;
  for (std::size_t i = 0; i < linears.size(); ++i) {
    named[linears[i].module] = decisions[i];
  }
  return named;
}

std::string spec_text(const Decision& decision) {
  return decision.spec ? describe(*decision.spec) : "kept";
}

void refused(const std::string& rules,
             const std::string& message,
             const Sizes& sizes = {},
             ErrorCode code = ErrorCode::kBadRecipe) {
  SCOPED_TRACE(rules);
  expect_error(
      code, message, [&] { static_cast<void>(decide(recipe(rules), sizes)); });
}

TEST(Resolve, TheKeepListComesBeforeTheRules) {
  const auto decided = decide(load_recipe("int4"));
  EXPECT_EQ(spec_text(decided.at("lm_head")), "kept");
  EXPECT_EQ(decided.at("lm_head").rule, std::nullopt);
  EXPECT_THAT(decided.at("lm_head").reason, testing::HasSubstr("keep list"));
  EXPECT_EQ(spec_text(decided.at("model.layers.1.mlp.gate")), "kept");
  const Decision& up = decided.at("model.layers.0.mlp.up_proj");
  EXPECT_EQ(spec_text(up), "int4 group 128");
  EXPECT_EQ(up.algorithm, "rtn");
  EXPECT_EQ(up.rule, 0U);
}

TEST(Resolve, WithoutDefaultsOnlyTheRulesDecide) {
  const auto decided = decide(
      recipe(R"({"match": "*", "scheme": "int8"})", R"("defaults": false, )"));
  EXPECT_EQ(spec_text(decided.at("lm_head")), "int8 channel");
}

TEST(Resolve, TheFirstRuleThatFitsWinsAndTheRestStaysDense) {
  const auto decided = decide(recipe(
      R"({"match": "*.1.self_attn.*", "scheme": "keep"},
         {"match": "*.self_attn.*", "scheme": "int8"})"));
  const Decision& first = decided.at("model.layers.1.self_attn.q_proj");
  EXPECT_EQ(spec_text(first), "kept");
  EXPECT_EQ(first.reason, "rules[0] keeps it");
  EXPECT_EQ(spec_text(decided.at("model.layers.0.self_attn.q_proj")),
            "int8 channel");
  EXPECT_EQ(decided.at("model.layers.0.mlp.up_proj").reason, "no rule fits it");
}

TEST(Resolve, AnExactNameCountsWhereItStandsAmongTheRules) {
  // Before the glob it wins, behind it the glob does.
  const std::string exact = "model.layers.0.self_attn.q_proj";
  const auto before = decide(recipe(
      R"({"match": "re:.*\\.k_proj", "scheme": "int8"},
         {"match": ["model.layers.0.self_attn.q_proj",
                    "model.layers.0.self_attn.v_proj",
                    "model.layers.1.self_attn.q_proj",
                    "model.layers.1.self_attn.v_proj"], "scheme": "int8"},
         {"match": "*.self_attn.*", "scheme": "int8", "group": 64})"));
  EXPECT_EQ(before.at(exact).rule, 1U);
  EXPECT_EQ(before.at("model.layers.0.self_attn.k_proj").rule, 0U);
  const auto behind = decide(recipe(
      R"({"match": "*.0.self_attn.*", "scheme": "int8"},
         {"match": ["model.layers.0.self_attn.q_proj",
                    "model.layers.1.self_attn.o_proj"], "scheme": "int4"})"));
  EXPECT_EQ(behind.at(exact).rule, 0U);
  EXPECT_EQ(behind.at("model.layers.1.self_attn.o_proj").rule, 1U);
}

TEST(Resolve, APatternThatFitsNothingIsRefusedWithASuggestion) {
  refused(R"({"match": "*.self_atn.*", "scheme": "int4"})",
          "did you mean self_attn instead of self_atn?");
  refused(R"({"match": ["*", "model.layers.0.mlp.up_prj"], "scheme": "int4"})",
          "did you mean up_proj instead of up_prj?");
  refused(R"({"match": "mlp.up_proj", "scheme": "int4"})",
          "did you mean model.layers.0.mlp.up_proj or *.mlp.up_proj?");
  refused(R"({"match": "re:up_proj", "scheme": "int4"})",
          "must fit the whole name");
  refused(R"({"match": "*.layers.7.*", "scheme": "int4"})",
          "rules[0].match: found the pattern '*.layers.7.*'");
}

TEST(Resolve, ARuleThatDecidesNothingIsRefusedWithWhoDecidedBefore) {
  refused(R"({"match": "*", "scheme": "int4"},
             {"match": "*.self_attn.*", "scheme": "int8"})",
          "rules[1]: found no linear that it decides: what it fits was decided "
          "before (8 by rules[0])");
  refused(R"({"match": "lm_head", "scheme": "int8"},
             {"match": "*", "scheme": "int4"})",
          "1 by the family's keep list");
}

TEST(Resolve, AnOptionalRuleMayBeDead) {
  const auto decided = decide(recipe(
      R"({"match": ["vision.*", "lm_head"], "scheme": "keep",
          "optional": true},
         {"match": "*", "scheme": "int4"},
         {"match": "*.o_proj", "scheme": "int8", "optional": true})"));
  EXPECT_EQ(spec_text(decided.at("model.layers.0.self_attn.o_proj")),
            "int4 group 128");
}

TEST(Resolve, AGroupThatDoesNotDivideIsRefusedWithOneThatDoes) {
  const Sizes smollm = {576, 1536, 576};
  refused(R"({"match": "*", "scheme": "int4"})",
          "does not divide (model.layers.0.self_attn.q_proj has 576 columns",
          smollm);
  refused(R"({"match": "*", "scheme": "int4"})",
          "use \"group\": 64 (the built-in recipe int4-g64)",
          smollm);
  refused(R"({"match": "*", "scheme": "int4"})",
          "use \"group\": \"channel\"",
          {100, 200, 100});
}

TEST(Resolve, OnIndivisibleSmallerTakesTheLargestGroupThatDivides) {
  const auto decided = decide(
      recipe(
          R"({"match": "*", "scheme": "int4", "on_indivisible": "smaller"})"),
      {256, 576, 256});
  EXPECT_EQ(spec_text(decided.at("model.layers.0.mlp.down_proj")),
            "int4 group 64");
  EXPECT_THAT(decided.at("model.layers.0.mlp.down_proj").reason,
              testing::HasSubstr("group 64 instead of 128"));
  // gate and up read the hidden size, which 128 divides.
  EXPECT_EQ(spec_text(decided.at("model.layers.0.mlp.up_proj")),
            "int4 group 128");
  refused(R"({"match": "*", "scheme": "int4", "on_indivisible": "smaller"})",
          "found 100 columns in model.layers.0.mlp.down_proj",
          {256, 100, 256});
}

// Engines ask one expert for the scheme of all, so what one needs all get.
TEST(Resolve, ExpertsOfALayerShrinkAndStayTogether) {
  const Sizes narrow = {256, 512, 96};
  const auto smaller = decide(
      recipe(
          R"({"match": "*", "scheme": "int4", "on_indivisible": "smaller"})"),
      narrow);
  EXPECT_EQ(spec_text(smaller.at("model.layers.1.mlp.experts.0.down_proj")),
            "int4 group 32");
  EXPECT_EQ(spec_text(smaller.at("model.layers.1.mlp.experts.1.gate_proj")),
            "int4 group 32");
  EXPECT_EQ(spec_text(smaller.at("model.layers.0.mlp.up_proj")),
            "int4 group 128");
  const auto kept = decide(
      recipe(R"({"match": "*", "scheme": "int4", "on_indivisible": "keep"})"),
      narrow);
  EXPECT_EQ(spec_text(kept.at("model.layers.1.mlp.experts.0.down_proj")),
            "kept");
  EXPECT_EQ(spec_text(kept.at("model.layers.1.mlp.experts.1.gate_proj")),
            "kept");
  EXPECT_THAT(kept.at("model.layers.1.mlp.experts.1.gate_proj").reason,
              testing::HasSubstr("its sibling"));
  EXPECT_EQ(spec_text(kept.at("model.layers.0.mlp.down_proj")),
            "int4 group 128");
}

TEST(Resolve, SiblingsThatEnginesFuseMustAgree) {
  refused(R"({"match": "*.q_proj", "scheme": "int8"},
             {"match": "*", "scheme": "int4"})",
          "module model.layers.0.self_attn: found q_proj as int8 channel and "
          "k_proj as int4 group 128");
  refused(R"({"match": "*.gate_proj", "scheme": "keep"},
             {"match": "*", "scheme": "int4"})",
          "\"match\": [\"*.mlp.gate_proj\", \"*.mlp.up_proj\"]");
  refused(R"({"match": "*.experts.0.*", "scheme": "int8"},
             {"match": "*", "scheme": "int4"})",
          "every expert of a layer");
  refused(R"({"match": "*.experts.*.down_proj", "scheme": "int8"},
             {"match": "*", "scheme": "int4"})",
          "\"match\": [\"*.experts.*\"]");
  // o and down stand alone.
  EXPECT_NO_THROW(decide(recipe(
      R"({"match": ["*.o_proj", "*.0.mlp.down_proj"], "scheme": "int8"},
         {"match": "*", "scheme": "int4"})")));
}

// A layer without v_proj, as some families have, is no contradiction.
TEST(Resolve, SiblingsThatDoNotExistDoNotCount) {
  const std::vector<LinearModule> linears = {
      {"m.layers.0.self_attn.q_proj", Role::kAttention, 256, 256},
      {"m.layers.0.self_attn.k_proj", Role::kAttention, 256, 256},
      {"m.layers.1.self_attn.q_proj", Role::kAttention, 256, 256}};
  EXPECT_NO_THROW(static_cast<void>(resolve(
      recipe(R"({"match": "*.0.*", "scheme": "int4"})"), family(), linears)));
}

TEST(Resolve, StaticActivationsNeedCalibration) {
  refused(R"({"match": "*", "scheme": "int8", "activations": "static"})",
          "calibration",
          {},
          ErrorCode::kUnsupported);
}

TEST(Resolve, ARecipeThatQuantizesNothingIsRefused) {
  refused(R"({"match": "*", "scheme": "keep"})", "that it quantizes");
  const std::vector<LinearModule> head = {{"lm_head", Role::kHead, 100, 256}};
  expect_error(ErrorCode::kBadRecipe, "keep list", [&] {
    static_cast<void>(resolve(load_recipe("int4"), family(), head));
  });
  expect_error(ErrorCode::kUnsupported, "no linear", [] {
    static_cast<void>(resolve(load_recipe("int4"), family(), {}));
  });
}

// ---- The keep list and embedding tables ------------------------------------

// The decision on a table of the model.
Decision table_decision(const Recipe& recipe) {
  static constexpr std::array<Role, 3> kAll = {
      Role::kHead, Role::kRouter, Role::kEmbedding};
  model::Family with_table = family();
  with_table.keep_dense = kAll;
  std::vector<LinearModule> linears = model_of();
  linears.push_back({"model.embed_tokens", Role::kEmbedding, 1000, 256});
  return resolve(recipe, with_table, linears).back();
}

TEST(Resolve, AForcedRuleDecidesWhatTheFamilyKeeps) {
  const auto decisions =
      decide(recipe(R"({"match": "lm_head", "scheme": "int8", "force": true},
                       {"match": "*", "scheme": "int4"})"));
  EXPECT_EQ(spec_text(decisions.at("lm_head")), "int8 channel");
  EXPECT_FALSE(decisions.at("model.layers.1.mlp.gate").spec);
}

TEST(Resolve, ADeadRuleForWhatIsKeptIsToldOfForce) {
  expect_error(ErrorCode::kBadRecipe, "\"force\": true", [] {
    static_cast<void>(decide(recipe(R"({"match": "lm_head", "scheme": "int8"},
                         {"match": "*", "scheme": "int4"})")));
  });
}

TEST(Resolve, ATableIsReachedByItsNameAlone) {
  const std::string others = R"(, {"match": "*", "scheme": "int4"})";
  for (const char* name : {"model.embed_tokens", "*.embed_tokens"}) {
    const Decision decision = table_decision(
        recipe(std::string(R"({"match": ")") + name +
               R"(", "scheme": "int8", "force": true})" + others));
    EXPECT_EQ(spec_text(decision), "int8 channel") << name;
  }
  const std::string no_defaults = "\"defaults\": false, ";
  EXPECT_FALSE(
      table_decision(recipe(R"({"match": "*", "scheme": "int4"})", no_defaults))
          .spec);
  for (const char* pattern : {"*embed*", "re:.*embed_tokens"}) {
    expect_error(ErrorCode::kBadRecipe, "by its name alone", [&] {
      static_cast<void>(
          table_decision(recipe(std::string(R"({"match": ")") + pattern +
                                    R"(", "scheme": "int8"})" + others,
                                no_defaults)));
    });
  }
}

TEST(Resolve, ATableHasNoActivationsToQuantize) {
  expect_error(ErrorCode::kBadRecipe, "no inputs but token ids", [] {
    static_cast<void>(table_decision(
        recipe(R"({"match": "model.embed_tokens", "scheme": "int8",
                   "activations": "dynamic", "force": true},
                  {"match": "*", "scheme": "int4"})")));
  });
}

}  // namespace
}  // namespace nibble::quant
