// Writing and reading back made checkpoints, and every way in which one can
// contradict itself.
#include "nibble/quant/formats/compressed_tensors/format.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/quant/formats/compressed_tensors/made_checkpoint_for_tests.h"

namespace nibble::quant::compressed_tensors {
namespace {

const std::string kUp = "model.layers.0.mlp.up_proj";
const std::string kDown = "model.layers.0.mlp.down_proj";

LayerSpec int4(std::int64_t group, bool symmetric = true) {
  NumberSpec weight =
      made_number(4, false, group > 0 ? Grain::kGroup : Grain::kChannel, group);
  weight.symmetric = symmetric;
  return {weight, std::nullopt};
}

LayerSpec int8(std::optional<NumberSpec> input = std::nullopt) {
  return {made_number(8, false, Grain::kChannel), std::move(input)};
}

LayerSpec fp8(Grain grain, std::optional<NumberSpec> input = std::nullopt) {
  return {made_number(8, true, grain), std::move(input)};
}

// Two quantized layers and the usual dense ones.
MadeCheckpoint made(const LayerSpec& spec) {
  MadeCheckpoint checkpoint;
  checkpoint.add(kUp, spec, 200, 256);
  checkpoint.add(kDown, spec, 256, 384);
  checkpoint.add_dense("lm_head", 300, 256);
  checkpoint.tensors["model.embed_tokens.weight"] =
      checkpoint.tensors["lm_head.weight"];
  checkpoint.tensors["model.norm.weight"] = {
      DType::kBF16, {256}, std::vector<std::byte>(512)};
  checkpoint.declare();
  return checkpoint;
}

// Opens and reads everything.
void load(const MadeCheckpoint& checkpoint) {
  const MemoryReader reader(checkpoint.tensors);
  const auto opened =
      compressed_tensors_format().open(checkpoint.config, reader);
  for (const std::string& module : opened->modules()) {
    static_cast<void>(
        opened->unpack(module, 0, opened->weight_shape(module)[0]));
    static_cast<void>(opened->input_scale(module));
  }
}

bool same_bytes(ConstTensorView a, ConstTensorView b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::equal(
             a.byte_span().begin(), a.byte_span().end(), b.byte_span().begin());
}

void expect_same(const Quantized& found, const Quantized& wanted) {
  EXPECT_EQ(found.spec, wanted.spec);
  EXPECT_TRUE(same_bytes(found.codes.view(), wanted.codes.view()));
  EXPECT_TRUE(same_bytes(found.scales.view(), wanted.scales.view()));
  ASSERT_EQ(found.zeros.has_value(), wanted.zeros.has_value());
  if (wanted.zeros) {
    EXPECT_TRUE(same_bytes(found.zeros->view(), wanted.zeros->view()));
  }
}

std::vector<LayerSpec> every_spec() {
  const NumberSpec token8 = made_number(8, false, Grain::kToken);
  const NumberSpec token_fp8 = made_number(8, true, Grain::kToken);
  LayerSpec int8_asymmetric = int8(token8);
  int8_asymmetric.weight.symmetric = false;
  LayerSpec int8_tensor = int8(token8);
  int8_tensor.weight.grain = Grain::kTensor;
  LayerSpec w4a8 = int4(128);
  w4a8.input = token8;
  LayerSpec f16 = int4(32, false);
  f16.weight.scale_dtype = DType::kF16;
  LayerSpec f32 = fp8(Grain::kChannel);
  f32.weight.scale_dtype = DType::kF32;
  return {int4(128),
          int4(64, false),
          int4(0),
          int4(0, false),
          int8(),
          int8(token8),
          int8_asymmetric,
          int8_tensor,
          w4a8,
          f16,
          f32,
          fp8(Grain::kTensor),
          fp8(Grain::kChannel, token_fp8),
          fp8(Grain::kBlock, made_number(8, true, Grain::kGroup, 128))};
}

TEST(CompressedTensors, WhatIsPackedIsUnpackedForEverySpec) {
  for (const LayerSpec& spec : every_spec()) {
    SCOPED_TRACE(describe(spec));
    const MadeCheckpoint checkpoint = made(spec);
    const MemoryReader reader(checkpoint.tensors);
    const auto opened =
        compressed_tensors_format().open(checkpoint.config, reader);
    ASSERT_NE(opened, nullptr);
    EXPECT_EQ(opened->modules(), (std::vector<std::string>{kDown, kUp}));
    EXPECT_EQ(opened->weight_shape(kUp), (Shape{200, 256}));
    EXPECT_EQ(opened->spec_of(kUp), spec);
    EXPECT_EQ(opened->spec_of("lm_head"), std::nullopt);
    for (const auto& [module, wanted] : checkpoint.originals) {
      expect_same(opened->unpack(module, 0, wanted.rows), wanted);
    }
  }
}

// What a layer's tensors hold does not depend on how it was cut into tiles.
TEST(CompressedTensors, TilesGiveTheSameBytesAsTheWhole) {
  const Format& format = compressed_tensors_format();
  for (const LayerSpec& spec : every_spec()) {
    SCOPED_TRACE(describe(spec));
    MadeCheckpoint whole;
    whole.add(kDown, spec, 300, 256);
    whole.declare();
    const MemoryReader reader(whole.tensors);
    const auto opened = format.open(whole.config, reader);
    auto tiled = whole.tensors;
    for (auto& [name, entry] : tiled) {
      std::fill(entry.bytes.begin(), entry.bytes.end(), std::byte{0x3C});
    }
    // The last tile first: offsets count, not the order.
    for (const std::int64_t first : {256, 128, 0}) {
      const std::int64_t rows = std::min<std::int64_t>(128, 300 - first);
      format.pack(kDown,
                  spec,
                  300,
                  first,
                  opened->unpack(kDown, first, rows),
                  [&tiled](std::string_view name,
                           std::uint64_t offset,
                           std::span<const std::byte> bytes) {
                    std::memcpy(
                        tiled.at(std::string(name)).bytes.data() + offset,
                        bytes.data(),
                        bytes.size());
                  });
    }
    for (const auto& [name, entry] : whole.tensors) {
      EXPECT_EQ(tiled.at(name).bytes, entry.bytes) << name;
    }
  }
}

TEST(CompressedTensors, StaticInputsHaveTheirScale) {
  const NumberSpec input = made_number(8, true, Grain::kTensor);
  MadeCheckpoint checkpoint = made(fp8(Grain::kTensor, input));
  const MemoryReader reader(checkpoint.tensors);
  const auto opened =
      compressed_tensors_format().open(checkpoint.config, reader);
  const auto scale = opened->input_scale(kUp);
  ASSERT_TRUE(scale.has_value());
  EXPECT_EQ(scale->shape(), Shape{1});
  EXPECT_EQ(opened->description(), "compressed-tensors float-quantized");
  EXPECT_EQ(opened->tensors_of(kUp),
            (std::vector<std::string>{
                kUp + ".weight", kUp + ".weight_scale", kUp + ".input_scale"}));
}

TEST(CompressedTensors, ColumnsThatDoNotFillAWordComeBack) {
  MadeCheckpoint checkpoint;
  checkpoint.add(kUp, int4(0, false), 13, 37);
  checkpoint.add(kDown, int8(), 3, 5);
  checkpoint.declare();
  const MemoryReader reader(checkpoint.tensors);
  const auto opened =
      compressed_tensors_format().open(checkpoint.config, reader);
  for (const auto& [module, wanted] : checkpoint.originals) {
    expect_same(opened->unpack(module, 0, wanted.rows), wanted);
  }
}

// The same content in the shapes that other writers give it.
TEST(CompressedTensors, ScalesOfOtherShapesAreRead) {
  for (const auto& [grain, shape] : {std::pair(Grain::kTensor, Shape{}),
                                     std::pair(Grain::kTensor, Shape{1, 1}),
                                     std::pair(Grain::kChannel, Shape{200})}) {
    MadeCheckpoint checkpoint = made(fp8(grain));
    checkpoint.tensors.at(kUp + ".weight_scale").shape = shape;
    const MemoryReader reader(checkpoint.tensors);
    const auto opened =
        compressed_tensors_format().open(checkpoint.config, reader);
    expect_same(opened->unpack(kUp, 0, 200), checkpoint.originals.at(kUp));
  }
}

TEST(CompressedTensors, ADenseConfigIsNotClaimed) {
  const MemoryReader reader({});
  const Format& format = compressed_tensors_format();
  EXPECT_EQ(format.open(nlohmann::json::object(), reader), nullptr);
  EXPECT_EQ(format.open({{"quantization_config", nullptr}}, reader), nullptr);
  EXPECT_EQ(format.open({{"quantization_config", {{"quant_method", "gptq"}}}},
                        reader),
            nullptr);
}

TEST(CompressedTensors, AnOldKeyOfTheConfigIsRead) {
  MadeCheckpoint checkpoint = made(int4(128));
  checkpoint.config = {{"compression_config", checkpoint.entry()}};
  checkpoint.config["compression_config"].erase("quant_method");
  EXPECT_NO_THROW(load(checkpoint));
}

TEST(CompressedTensors, ABiasIsPartOfAModule) {
  MadeCheckpoint checkpoint = made(int4(128));
  checkpoint.tensors[kUp + ".bias"] = {
      DType::kBF16, {200}, std::vector<std::byte>(400)};
  EXPECT_NO_THROW(load(checkpoint));
}

TEST(CompressedTensors, RowsOutsideOfAModuleAreRefused) {
  const MadeCheckpoint checkpoint = made(int4(128));
  const MemoryReader reader(checkpoint.tensors);
  const auto opened =
      compressed_tensors_format().open(checkpoint.config, reader);
  for (const auto& [first, count] : {std::pair(0, 201),
                                     std::pair(64, 8),
                                     std::pair(-128, 8),
                                     std::pair(128, 0),
                                     std::pair(256, 1)}) {
    expect_error(ErrorCode::kInvalidArgument, "rows", [&] {
      static_cast<void>(opened->unpack(kUp, first, count));
    });
  }
  expect_error(ErrorCode::kNotFound, "lm_head", [&] {
    static_cast<void>(opened->unpack("lm_head", 0, 1));
  });
}

struct Damage {
  std::string what;
  LayerSpec spec;
  std::function<void(MadeCheckpoint&)> apply;
  ErrorCode code;
  std::string message;
};

void set_scale(MadeCheckpoint& checkpoint, float value) {
  auto& bytes = checkpoint.tensors.at(kUp + ".weight_scale").bytes;
  const std::uint16_t bits = float_to_bf16(value);
  std::memcpy(bytes.data() + 2 * 5, &bits, 2);  // row 2, group 1 of 2
}

std::vector<Damage> tensor_damages() {
  const NumberSpec input = made_number(8, true, Grain::kTensor);
  return {
      {"missing scale",
       int4(128),
       [](auto& c) { c.tensors.erase(kUp + ".weight_scale"); },
       ErrorCode::kCorruptData,
       kUp + ".weight_scale: found none"},
      {"missing codes",
       int4(128),
       [](auto& c) { c.tensors.erase(kUp + ".weight_packed"); },
       ErrorCode::kCorruptData,
       kUp + ".weight_packed: found none"},
      {"missing shape",
       int4(128),
       [](auto& c) { c.tensors.erase(kUp + ".weight_shape"); },
       ErrorCode::kCorruptData,
       kUp + ".weight_shape: found none"},
      {"missing zero points",
       int4(128, false),
       [](auto& c) { c.tensors.erase(kUp + ".weight_zero_point"); },
       ErrorCode::kCorruptData,
       kUp + ".weight_zero_point: found none"},
      {"missing input scale",
       fp8(Grain::kTensor, input),
       [](auto& c) { c.tensors.erase(kUp + ".input_scale"); },
       ErrorCode::kCorruptData,
       kUp + ".input_scale: found none"},
      {"wrong dtype of codes",
       int4(128),
       [](auto& c) {
         c.tensors.at(kUp + ".weight_packed").dtype = DType::kF32;
       },
       ErrorCode::kCorruptData,
       "weight_packed: found dtype F32, expected I32"},
      {"wrong dtype of scales",
       int4(128),
       [](auto& c) { c.tensors.at(kUp + ".weight_scale").dtype = DType::kI16; },
       ErrorCode::kCorruptData,
       "weight_scale: found dtype I16, expected BF16, F16 or F32"},
      {"wrong shape of scales",
       int4(128),
       [](auto& c) {
         c.tensors.at(kUp + ".weight_scale").shape = {100, 4};
       },
       ErrorCode::kCorruptData,
       "weight_scale: found shape (100, 4), expected (200, 2)"},
      {"wrong shape of codes",
       int4(128),
       [](auto& c) {
         c.tensors.at(kUp + ".weight_packed").shape = {100, 64};
       },
       ErrorCode::kCorruptData,
       "weight_shape: found (200, 256)"},
      {"three dimensions",
       fp8(Grain::kChannel),
       [](auto& c) {
         c.tensors.at(kUp + ".weight").shape = {2, 100, 256};
       },
       ErrorCode::kUnsupported,
       "stacked experts"},
      {"lying weight_shape",
       int4(128),
       [](auto& c) {
         c.tensors.at(kUp + ".weight_shape").bytes[9] = std::byte{0x02};
       },
       ErrorCode::kCorruptData,
       "weight_shape: found (200, 512)"},
      {"negative weight_shape",
       int4(128),
       [](auto& c) {
         auto& bytes = c.tensors.at(kUp + ".weight_shape").bytes;
         std::fill(bytes.begin() + 8, bytes.end(), std::byte{0xFF});
       },
       ErrorCode::kCorruptData,
       "weight_shape: found (200, -1)"},
      {"extra zero points",
       int4(128),
       [](auto& c) {
         c.tensors[kUp + ".weight_zero_point"] =
             c.tensors.at(kUp + ".weight_packed");
       },
       ErrorCode::kCorruptData,
       "weight_zero_point: found one, expected none"},
      {"extra tensor of no known name",
       int4(128),
       [](auto& c) {
         c.tensors[kUp + ".meta"] = c.tensors.at(kUp + ".weight_packed");
       },
       ErrorCode::kCorruptData,
       kUp + ".meta: found one, expected none"},
      {"columns in another order",
       int4(128),
       [](auto& c) {
         c.tensors[kUp + ".weight_g_idx"] =
             c.tensors.at(kUp + ".weight_packed");
       },
       ErrorCode::kCorruptData,
       "weight_g_idx: found one, expected none"},
      {"cache scale",
       int4(128),
       [](auto& c) {
         c.tensors["model.layers.0.self_attn.k_scale"] =
             c.tensors.at(kUp + ".weight_scale");
       },
       ErrorCode::kUnsupported,
       "key/value cache"},
      {"NaN scale",
       int4(128),
       [](auto& c) { set_scale(c, std::nanf("")); },
       ErrorCode::kCorruptData,
       "weight_scale: found the scale nan at (2, 1)"},
      {"infinite scale",
       int4(128),
       [](auto& c) { set_scale(c, HUGE_VALF); },
       ErrorCode::kCorruptData,
       "weight_scale: found the scale inf at (2, 1)"},
      {"zero scale",
       int4(128),
       [](auto& c) { set_scale(c, 0.0F); },
       ErrorCode::kCorruptData,
       "weight_scale: found the scale 0 at (2, 1)"},
      {"negative scale",
       int4(128),
       [](auto& c) { set_scale(c, -0.5F); },
       ErrorCode::kCorruptData,
       "weight_scale: found the scale -0.5 at (2, 1)"},
      {"NaN code",
       fp8(Grain::kChannel),
       [](auto& c) {
         c.tensors.at(kUp + ".weight").bytes[256 + 7] = std::byte{0xFF};
       },
       ErrorCode::kCorruptData,
       "weight: found the byte 0xFF at (1, 7)"},
      {"input scale of zero",
       fp8(Grain::kTensor, input),
       [](auto& c) {
         auto& bytes = c.tensors.at(kUp + ".input_scale").bytes;
         std::fill(bytes.begin(), bytes.end(), std::byte{0});
       },
       ErrorCode::kCorruptData,
       "input_scale: found the scale 0"},
      {"a declared module is dense",
       int4(128),
       [](auto& c) {
         c.tensors["model.layers.1.mlp.up_proj.weight"] =
             c.tensors.at("lm_head.weight");
       },
       ErrorCode::kCorruptData,
       "module model.layers.1.mlp.up_proj: found a dense weight"},
      {"a quantized module is ignored",
       int4(128),
       [](auto& c) { c.entry()["ignore"].push_back("re:.*up_proj"); },
       ErrorCode::kCorruptData,
       "module " + kUp + ": found quantized tensors"},
      {"no target fits a quantized module",
       int4(128),
       [](auto& c) {
         c.entry()["config_groups"]["group_0"]["targets"] = {"re:.*down_proj$"};
       },
       ErrorCode::kCorruptData,
       "no target"},
      {"a target names no module",
       int4(128),
       [](auto& c) {
         c.entry()["config_groups"]["group_0"]["targets"].push_back(
             "model.layers.7.mlp.up_proj");
       },
       ErrorCode::kCorruptData,
       "target 'model.layers.7.mlp.up_proj'"},
      {"nothing is quantized",
       int4(128),
       [](auto& c) {
         std::erase_if(c.tensors, [](const auto& each) {
           return each.first.find("proj") != std::string::npos;
         });
       },
       ErrorCode::kCorruptData,
       "no quantized module"},
  };
}

TEST(CompressedTensors, DamagedTensorsAreRefused) {
  for (const Damage& damage : tensor_damages()) {
    SCOPED_TRACE(damage.what);
    MadeCheckpoint checkpoint = made(damage.spec);
    ASSERT_NO_THROW(load(checkpoint));
    damage.apply(checkpoint);
    expect_error(damage.code, damage.message, [&] { load(checkpoint); });
  }
}

TEST(CompressedTensors, NarrowCodesInBytesKeepTheirRange) {
  LayerSpec spec = int4(128);
  spec.input = made_number(8, false, Grain::kToken);
  MadeCheckpoint checkpoint = made(spec);
  checkpoint.tensors.at(kUp + ".weight").bytes[3] = std::byte{8};
  expect_error(ErrorCode::kCorruptData,
               "weight: found the byte 0x08 at (0, 3)",
               [&] { load(checkpoint); });
}

TEST(CompressedTensors, CheckRefusesWhatNoFormatHolds) {
  const Format& format = compressed_tensors_format();
  const auto refused = [&](const LayerSpec& spec, std::string_view part) {
    expect_error(
        ErrorCode::kUnsupported, part, [&] { format.check(spec, 256, 384); });
  };
  refused(int4(256), "384 columns");
  refused({made_number(3, false, Grain::kChannel), std::nullopt}, "int3");
  refused({made_number(4, true, Grain::kChannel), std::nullopt}, "fp4");
  refused({made_number(4, false, Grain::kTensor), std::nullopt}, "packed");
  refused({made_number(8, false, Grain::kToken), std::nullopt}, "token");
  refused({made_number(8, false, Grain::kBlock), std::nullopt}, "blocks");
  refused(int8(made_number(8, true, Grain::kToken)), "fp8 inputs");
  refused(fp8(Grain::kChannel, made_number(8, true, Grain::kChannel)),
          "a scale a channel");
  LayerSpec block = fp8(Grain::kBlock);
  block.weight.block_rows = 96;
  refused(block, "96x128");
  LayerSpec asymmetric = fp8(Grain::kChannel);
  asymmetric.weight.symmetric = false;
  refused(asymmetric, "asymmetric fp8");
  LayerSpec input = int8(made_number(8, false, Grain::kTensor));
  input.input->symmetric = false;
  refused(input, "static asymmetric");
  LayerSpec scales = int8();
  scales.weight.scale_dtype = DType::kF8E4M3;
  refused(scales, "F8_E4M3 scales");
  expect_error(ErrorCode::kUnsupported, "(0, 384)", [&] {
    format.check(int8(), 0, 384);
  });
}

}  // namespace
}  // namespace nibble::quant::compressed_tensors
