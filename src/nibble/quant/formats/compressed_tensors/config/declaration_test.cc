// quantization_config: what is read, in which spelling, and what is refused.
#include "nibble/quant/formats/compressed_tensors/config/declaration.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/log.h"
#include "nibble/quant/formats/compressed_tensors/made_checkpoint_for_tests.h"

namespace nibble::quant::compressed_tensors {
namespace {

using nlohmann::json;

// A declaration of one group of int4 in 128 columns.
json entry() {
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights",
               {{"num_bits", 4}, {"strategy", "group"}, {"group_size", 128}}},
              {"input_activations", nullptr}}}}},
          {"ignore", {"lm_head"}}};
}

json& group(json& declaration) {
  return declaration["config_groups"]["group_0"];
}

LayerSpec spec_of(const json& declaration) {
  return *parse_declaration(declaration).groups.at(0).spec;
}

TEST(Declaration, DefaultsOfAbsentKeysAreTheLibrarys) {
  json declaration = entry();
  group(declaration)["weights"] = json::object();
  declaration["format"] = "naive-quantized";
  const LayerSpec spec = spec_of(declaration);
  EXPECT_EQ(spec.weight, made_number(8, false, Grain::kTensor));
  EXPECT_EQ(spec.input, std::nullopt);
}

TEST(Declaration, StrategiesAreDerivedWhenAbsent) {
  json declaration = entry();
  group(declaration)["weights"].erase("strategy");
  EXPECT_EQ(spec_of(declaration).weight,
            made_number(4, false, Grain::kGroup, 128));
  group(declaration)["weights"]["group_size"] = -1;
  EXPECT_EQ(spec_of(declaration).weight,
            made_number(4, false, Grain::kChannel));
}

TEST(Declaration, BlocksAreReadInBothSpellings) {
  json declaration = entry();
  declaration["format"] = "float-quantized";
  for (const json& block : {json{128, 128}, json("128x128")}) {
    group(declaration)["weights"] = {{"num_bits", 8},
                                     {"type", "float"},
                                     {"strategy", "block"},
                                     {"block_structure", block}};
    EXPECT_EQ(spec_of(declaration).weight, made_number(8, true, Grain::kBlock));
  }
}

TEST(Declaration, UnknownKeysAtTheTopAreNoError) {
  json declaration = entry();
  declaration["run_compressed"] = true;
  declaration["something_new"] = {1, 2};
  EXPECT_NO_THROW(static_cast<void>(parse_declaration(declaration)));
}

TEST(Declaration, EmptyFeaturesAreNoFeatures) {
  json declaration = entry();
  declaration["sparsity_config"] = json::object();
  declaration["transform_config"] = {{"config_groups", json::object()}};
  declaration["kv_cache_scheme"] = nullptr;
  EXPECT_NO_THROW(static_cast<void>(parse_declaration(declaration)));
  declaration["sparsity_config"] = {{"format", "dense"}};
  EXPECT_NO_THROW(static_cast<void>(parse_declaration(declaration)));
}

TEST(Declaration, AFormatThatSaysNothingFollowsFromTheNumbers) {
  for (const char* word : {"", "fakequant", "mixed-precision"}) {
    json declaration = entry();
    declaration["format"] = word;
    EXPECT_EQ(parse_declaration(declaration).groups[0].format,
              "pack-quantized");
  }
}

TEST(Declaration, PresetsAreNamesOfGroups) {
  const struct {
    const char* name;
    const char* meaning;
  } kCases[] = {
      {"W4A16", "int4 group 128"},
      {"W4A16_ASYM", "int4 group 128 asymmetric"},
      {"W8A8", "int8 channel, int8 token inputs"},
      {"INT8", "int8 channel, int8 token inputs"},
      {"W4A8", "int4 group 128, int8 token inputs"},
      {"FP8", "fp8 tensor, fp8 tensor inputs static"},
      {"FP8_DYNAMIC", "fp8 channel, fp8 token inputs"},
      {"FP8_BLOCK", "fp8 block 128x128, fp8 group 128 inputs"},
      {"W8A16", "int8 group 128"},
  };

  for (const auto& each : kCases) {
    json declaration = entry();
    declaration.erase("format");
    declaration["config_groups"] = {{each.name, {"Linear"}}};
    EXPECT_EQ(describe(spec_of(declaration)), each.meaning);
  }
  json declaration = entry();
  declaration["config_groups"]["UNQUANTIZED"] = {"re:.*o_proj"};
  EXPECT_EQ(parse_declaration(declaration).groups.at(0).spec, std::nullopt);
}

TEST(Declaration, APresetWithTwoMeaningsIsWarnedOf) {
  std::string warning;
  set_log_sink([&warning](LogLevel level, std::string_view text) {
    if (level == LogLevel::kWarning) {
      warning = text;
    }
  });
  json declaration = entry();
  declaration["config_groups"] = {{"W8A16", {"Linear"}}};
  static_cast<void>(parse_declaration(declaration));
  set_log_sink(nullptr);
  EXPECT_NE(warning.find("W8A16"), std::string::npos) << warning;
}

struct Case {
  std::string what;
  std::function<void(json&)> apply;
  ErrorCode code;
  std::string message;
};

std::vector<Case> value_cases() {
  constexpr auto kBad = ErrorCode::kCorruptData;
  constexpr auto kNo = ErrorCode::kUnsupported;
  const auto weights = [](const char* key, json value) {
    return [key = std::string(key), value = std::move(value)](json& d) {
      group(d)["weights"][key] = value;
    };
  };
  return {
      {"type", weights("type", "complex"), kBad, "weights.type: found"},
      {"bits", weights("num_bits", 9), kBad, "num_bits: found 9"},
      {"bits as text", weights("num_bits", "4"), kBad, "an integer"},
      {"huge bits", weights("num_bits", 1e300), kBad, "an integer"},
      {"wrapped bits",
       weights("num_bits", 18446744073709551615ULL),
       kBad,
       "an integer"},
      {"3 bits", weights("num_bits", 3), kNo, "3-bit int"},
      {"strategy",
       weights("strategy", "grupo"),
       kBad,
       "strategy: found 'grupo'"},
      {"tensor_group",
       weights("strategy", "tensor_group"),
       kNo,
       "tensor_group"},
      {"token weights",
       [](json& d) {
         group(d)["weights"] = {{"strategy", "token"}};
       },
       kBad,
       "token for weights"},
      {"group without size",
       weights("group_size", nullptr),
       kBad,
       "group_size: found 0"},
      {"group below -1", weights("group_size", -2), kBad, "found -2"},
      {"channel with a size",
       weights("strategy", "channel"),
       kBad,
       "group_size"},
      {"block without structure",
       [](json& d) {
         group(d)["weights"] = {{"strategy", "block"}};
       },
       kBad,
       "block_structure: found none"},
      {"block of text",
       weights("block_structure", "128by128"),
       kBad,
       "block_structure: found \"128by128\""},
      {"block of zero", weights("block_structure", {0, 128}), kBad, "[0,128]"},
      {"symmetric as text", weights("symmetric", "yes"), kBad, "true or false"},
      {"dynamic weights", weights("dynamic", true), kBad, "dynamic weights"},
      {"dynamic word", weights("dynamic", "maybe"), kBad, "dynamic: found"},
      {"order of columns", weights("actorder", "group"), kNo, "actorder"},
      {"order of columns, old spelling",
       weights("actorder", true),
       kNo,
       "actor"},
      {"unknown order", weights("actorder", "x"), kBad, "actorder: found"},
      {"unknown key",
       weights("goup_size", 1),
       kBad,
       "did you mean group_size?"},
      {"NVFP4 scales",
       weights("scale_dtype", "torch.float8_e4m3fn"),
       kNo,
       "NVFP4"},
      {"MX scales", weights("scale_dtype", "torch.uint8"), kNo, "an MX form"},
      {"other scales",
       weights("scale_dtype", "torch.int8"),
       kBad,
       "torch.int8"},
      {"other zero points",
       weights("zp_dtype", "torch.int32"),
       kNo,
       "zp_dtype"},
      {"asymmetric floats",
       [](json& d) {
         group(d)["weights"] = {{"type", "float"}, {"symmetric", false}};
       },
       kBad,
       "false for floats"},
  };
}

std::vector<Case> group_cases() {
  constexpr auto kBad = ErrorCode::kCorruptData;
  constexpr auto kNo = ErrorCode::kUnsupported;
  const auto inputs = [](json args) {
    return [args = std::move(args)](json& d) {
      group(d)["input_activations"] = args;
    };
  };
  const auto top = [](const char* key, json value) {
    return [key = std::string(key), value = std::move(value)](json& d) {
      d[key] = value;
    };
  };
  return {
      {"inputs a channel",
       inputs({{"strategy", "channel"}}),
       kBad,
       "channel for inputs"},
      {"4-bit inputs",
       inputs({{"strategy", "token"}, {"dynamic", true}, {"num_bits", 4}}),
       kNo,
       "4-bit inputs"},
      {"static tokens", inputs({{"strategy", "token"}}), kNo, "static inputs"},
      {"dynamic tensor", inputs({{"dynamic", true}}), kNo, "dynamic inputs"},
      {"static asymmetric", inputs({{"symmetric", false}}), kNo, "asymmetric"},
      {"outputs",
       [](json& d) { group(d)["output_activations"] = json::object(); },
       kNo,
       "output_activations"},
      {"inputs alone",
       [](json& d) {
         group(d)["weights"] = nullptr;
         group(d)["input_activations"] = json::object();
       },
       kNo,
       "without quantized weights"},
      {"unknown key of a group",
       [](json& d) { group(d)["target"] = "x"; },
       kBad,
       "did you mean targets?"},
      {"no targets",
       [](json& d) { group(d).erase("targets"); },
       kBad,
       "targets"},
      {"targets of numbers",
       [](json& d) { group(d)["targets"] = {1}; },
       kBad,
       "a list of strings"},
      {"group of text",
       [](json& d) { group(d) = "x"; },
       kBad,
       "expected an object"},
      {"a list that is no preset",
       [](json& d) {
         d["config_groups"] = {{"mine", {"Linear"}}};
       },
       kBad,
       "the name of a preset"},
      {"a preset of 3 bits",
       [](json& d) {
         d["config_groups"] = {{"W3A16", {"Linear"}}};
       },
       kNo,
       "the preset W3A16"},
      {"no groups", top("config_groups", json::object()), kBad, "at least one"},
      {"the same target twice",
       [](json& d) { d["config_groups"]["b"] = group(d); },
       kBad,
       "'Linear' twice"},
      {"format", top("format", "pack-quantised"), kBad, "did you mean"},
      {"format for other numbers",
       top("format", "float-quantized"),
       kBad,
       "float-quantized for int4 weights"},
      {"nvfp4", top("format", "nvfp4-pack-quantized"), kNo, "nvfp4"},
      {"mxfp4", top("format", "mxfp4-pack-quantized"), kNo, "mxfp4"},
      {"mxfp8", top("format", "mxfp8-quantized"), kNo, "mxfp8"},
      {"marlin", top("format", "marlin-24"), kNo, "marlin-24"},
      {"sparse", top("format", "sparse-24-bitmask"), kNo, "sparse-24"},
      {"sparsity",
       top("sparsity_config", {{"format", "sparse-bitmask"}}),
       kNo,
       "sparse-bitmask"},
      {"sparsity of text", top("sparsity_config", "2:4"), kBad, "sparsity"},
      {"transform",
       top("transform_config", {{"config_groups", {{"a", 1}}}}),
       kNo,
       "rotated"},
      {"cache",
       top("kv_cache_scheme", {{"num_bits", 8}}),
       kNo,
       "key/value cache"},
      {"ignore of text", top("ignore", "lm_head"), kBad, "a list of strings"},
      {"format of a number", top("format", 4), kBad, "a string"},
  };
}

TEST(Declaration, WrongValuesOfArgsAreRefusedWithTheirPath) {
  for (const Case& each : value_cases()) {
    SCOPED_TRACE(each.what);
    json declaration = entry();
    each.apply(declaration);
    expect_error(each.code, each.message, [&] {
      static_cast<void>(parse_declaration(declaration));
    });
  }
}

TEST(Declaration, WrongGroupsAndUnsupportedFeaturesAreRefused) {
  for (const Case& each : group_cases()) {
    SCOPED_TRACE(each.what);
    json declaration = entry();
    each.apply(declaration);
    expect_error(each.code, each.message, [&] {
      static_cast<void>(parse_declaration(declaration));
    });
  }
}

Declaration with_targets(const std::vector<std::vector<std::string>>& targets) {
  Declaration declaration;
  for (const auto& each : targets) {
    Group group;
    group.name = std::to_string(declaration.groups.size());
    group.targets = each;
    declaration.groups.push_back(std::move(group));
  }
  return declaration;
}

TEST(Targets, ExactNamesGoBeforeExpressionsAndTheseBeforeClasses) {
  const Declaration declaration =
      with_targets({{"Linear"}, {"re:.*mlp.*"}, {"a.mlp.up_proj"}, {"re:.*"}});
  const Targets targets(declaration);
  EXPECT_EQ(targets.find("a.mlp.up_proj")->group->name, "2");
  // "re:.*" sorts before "re:.*mlp.*".
  EXPECT_EQ(targets.find("a.mlp.down_proj")->group->name, "3");
  EXPECT_EQ(targets.exact_targets(),
            std::vector<std::string_view>{"a.mlp.up_proj"});
}

TEST(Targets, ExpressionsFitFromTheStartOfAName) {
  const Declaration declaration = with_targets({{"re:model\\.layers"}});
  const Targets targets(declaration);
  EXPECT_TRUE(targets.find("model.layers.0.mlp.up_proj").has_value());
  EXPECT_FALSE(targets.find("vision.model.layers.0").has_value());
}

TEST(Targets, TheClassLinearFitsEverythingAndSaysSo) {
  const Declaration declaration = with_targets({{"Linear"}});
  const Targets targets(declaration);
  EXPECT_TRUE(targets.find("anything")->by_class);
}

TEST(Targets, IgnoreTakesNamesExpressionsAndTheClass) {
  Declaration declaration = with_targets({{"Linear"}});
  declaration.ignore = {"lm_head", "re:.*router", "Llama4TextAttention"};
  const Targets targets(declaration);
  EXPECT_TRUE(targets.ignored("lm_head"));
  EXPECT_TRUE(targets.ignored("model.layers.1.feed_forward.router"));
  EXPECT_FALSE(targets.ignored("language_model.lm_head"));
  EXPECT_FALSE(targets.ignored("model.layers.1.mlp.up_proj"));
  declaration.ignore = {"Linear"};
  EXPECT_TRUE(Targets(declaration).ignored("model.layers.1.mlp.up_proj"));
}

TEST(Targets, OtherClassesAndMalformedExpressionsAreRefused) {
  expect_error(ErrorCode::kUnsupported, "the class LlamaAttention", [] {
    const Declaration declaration = with_targets({{"LlamaAttention"}});
    static_cast<void>(Targets(declaration));
  });
  expect_error(ErrorCode::kCorruptData, "regular expression", [] {
    const Declaration declaration = with_targets({{"re:(((("}});
    static_cast<void>(Targets(declaration));
  });
}

}  // namespace
}  // namespace nibble::quant::compressed_tensors
