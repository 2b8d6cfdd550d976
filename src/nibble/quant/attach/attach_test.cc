// Layers that fill slots of a model: they compute what the decoded weights
// would, with bias and with the static input scale that the checkpoint stores.
#include "nibble/quant/attach/attach.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/formats/compressed_tensors/made_checkpoint_for_tests.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

using compressed_tensors::made_number;
using compressed_tensors::MadeCheckpoint;
using compressed_tensors::MemoryReader;

const std::string kPath = "model.layers.0.mlp.up_proj";
constexpr std::int64_t kRows = 200;
constexpr std::int64_t kColumns = 256;

MadeCheckpoint made(const LayerSpec& spec) {
  MadeCheckpoint checkpoint;
  checkpoint.add(kPath, spec, kRows, kColumns);
  checkpoint.declare();
  return checkpoint;
}

void add_bias(MadeCheckpoint& checkpoint) {
  std::vector<float> values(kRows);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.25F * static_cast<float>(i);
  }
  Tensor bias(DType::kBF16, {kRows});
  convert_from_float(values, bias.view());
  const auto bytes = bias.view().byte_span();
  checkpoint.tensors[kPath + ".bias"] = {
      DType::kBF16, {kRows}, {bytes.begin(), bytes.end()}};
}

model::LinearSlot slot(bool bias = false) {
  return {kPath, kColumns, kRows, bias, nullptr};
}

// One token: a wave over the columns.
Tensor input() {
  std::vector<float> values(kColumns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(0.1F * static_cast<float>(i));
  }
  return Tensor::from_floats({1, kColumns}, values);
}

std::vector<float> forward(const MadeCheckpoint& checkpoint, bool bias) {
  const MemoryReader reader(checkpoint.tensors);
  const auto opened = open_quantized(checkpoint.config, reader);
  const QuantizedLayerBuilder builder(*opened);
  backend::Backend& backend = backend::cpu_backend();
  EXPECT_TRUE(builder.claims(reader, slot(bias)));
  const auto layer = builder.build(reader, slot(bias), backend);
  Tensor y(DType::kF32, {1, kRows});
  layer->forward(input().view(), y.view(), backend.stream());
  const auto values = y.view().as<float>();
  return {values.begin(), values.end()};
}

std::vector<float> product_of_decoded(const Quantized& weight) {
  Tensor decoded(DType::kF32, {kRows, kColumns});
  scheme_for(weight.spec).decode(weight, decoded.view());
  const auto w = decoded.view().as<float>();
  const Tensor x = input();
  std::vector<float> y(kRows);
  for (std::size_t r = 0; r < y.size(); ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < kColumns; ++c) {
      sum += static_cast<double>(w[r * kColumns + c]) *
             static_cast<double>(x.view().as<float>()[c]);
    }
    y[r] = static_cast<float>(sum);
  }
  return y;
}

// Root of the mean squared difference over that of b.
double relative(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i] - b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

TEST(Attach, LayersComputeWhatTheDecodedWeightsWould) {
  NumberSpec asymmetric = made_number(4, false, Grain::kGroup, 64);
  asymmetric.symmetric = false;
  const NumberSpec int8_token = made_number(8, false, Grain::kToken);
  const NumberSpec fp8_token = made_number(8, true, Grain::kToken);

  const struct {
    LayerSpec spec;
    double tolerance;  // rounding of the inputs, where they are rounded
  } kCases[] = {
      {{made_number(4, false, Grain::kGroup, 128), std::nullopt}, 1e-3},
      {{asymmetric, std::nullopt}, 1e-3},
      {{made_number(8, false, Grain::kChannel), std::nullopt}, 1e-3},
      {{made_number(8, false, Grain::kChannel), int8_token}, 0.02},
      {{made_number(8, true, Grain::kChannel), std::nullopt}, 1e-3},
      {{made_number(8, true, Grain::kChannel), fp8_token}, 0.06},
      {{made_number(8, true, Grain::kBlock),
        made_number(8, true, Grain::kGroup, 128)},
       0.06}};

  for (const auto& each : kCases) {
    SCOPED_TRACE(describe(each.spec));
    const MadeCheckpoint checkpoint = made(each.spec);
    EXPECT_LT(relative(forward(checkpoint, false),
                       product_of_decoded(checkpoint.originals.at(kPath))),
              each.tolerance);
  }
}

TEST(Attach, TheBiasIsAdded) {
  MadeCheckpoint checkpoint =
      made({made_number(4, false, Grain::kGroup, 128), std::nullopt});
  const std::vector<float> without = forward(checkpoint, false);
  add_bias(checkpoint);
  const std::vector<float> with = forward(checkpoint, true);
  for (std::size_t i = 0; i < with.size(); ++i) {
    EXPECT_NEAR(with[i] - without[i], 0.25F * static_cast<float>(i), 1e-2);
  }
}

TEST(Attach, ABiasThatTheConfigDoesNotKnowIsRefused) {
  MadeCheckpoint checkpoint =
      made({made_number(8, false, Grain::kChannel), std::nullopt});
  expect_error(ErrorCode::kNotFound, kPath + ".bias", [&] {
    static_cast<void>(forward(checkpoint, true));
  });
  add_bias(checkpoint);
  expect_error(ErrorCode::kCorruptData, kPath + ".bias: found a bias", [&] {
    static_cast<void>(forward(checkpoint, false));
  });
  checkpoint.tensors.at(kPath + ".bias").shape = {kRows / 2, 2};
  expect_error(ErrorCode::kCorruptData, "(100, 2)", [&] {
    static_cast<void>(forward(checkpoint, true));
  });
}

TEST(Attach, AWeightOfAnotherShapeThanTheSlotIsRefused) {
  const MadeCheckpoint checkpoint =
      made({made_number(8, false, Grain::kChannel), std::nullopt});
  const MemoryReader reader(checkpoint.tensors);
  const auto opened = open_quantized(checkpoint.config, reader);
  const QuantizedLayerBuilder builder(*opened);
  model::LinearSlot wrong = slot();
  wrong.out = 128;
  expect_error(ErrorCode::kCorruptData, "(200, 256), expected (128, 256)", [&] {
    static_cast<void>(builder.build(reader, wrong, backend::cpu_backend()));
  });
}

TEST(Attach, DenseSlotsAreNotClaimed) {
  MadeCheckpoint checkpoint =
      made({made_number(8, false, Grain::kChannel), std::nullopt});
  checkpoint.add_dense("lm_head", 16, kColumns);
  checkpoint.declare();
  const MemoryReader reader(checkpoint.tensors);
  const auto opened = open_quantized(checkpoint.config, reader);
  const QuantizedLayerBuilder builder(*opened);
  model::LinearSlot head = slot();
  head.path = "lm_head";
  EXPECT_FALSE(builder.claims(reader, head));
  EXPECT_TRUE(builder.tensors_of(reader, "lm_head").empty());
  add_bias(checkpoint);
  const MemoryReader biased(checkpoint.tensors);
  EXPECT_EQ(builder.tensors_of(biased, kPath).back(), kPath + ".bias");
}

// Inputs beyond what a stored scale can express saturate: a layer that did not
// use the scale would not notice.
TEST(Attach, StoredInputScalesAreUsed) {
  const LayerSpec spec = {made_number(8, false, Grain::kChannel),
                          made_number(8, false, Grain::kTensor)};
  MadeCheckpoint checkpoint = made(spec);
  const auto set_scale = [&checkpoint](float scale) {
    const std::uint16_t bits = float_to_bf16(scale);
    auto& bytes = checkpoint.tensors.at(kPath + ".input_scale").bytes;
    bytes = {std::byte(bits & 0xFFU), std::byte(bits >> 8)};
  };
  const std::vector<float> exact =
      product_of_decoded(checkpoint.originals.at(kPath));
  set_scale(1.0F / 127);
  EXPECT_LT(relative(forward(checkpoint, false), exact), 0.02);
  set_scale(0.1F / 127);  // everything above 0.1 is cut
  EXPECT_GT(relative(forward(checkpoint, false), exact), 0.3);
}

TEST(Attach, EmbeddingTablesGiveTheRowsThatTheSchemeDecodes) {
  NumberSpec asymmetric = made_number(4, false, Grain::kGroup, 64);
  asymmetric.symmetric = false;
  constexpr std::int64_t kWords = 1300;  // more than is taken over at once
  for (const NumberSpec& spec : {made_number(4, false, Grain::kGroup, 32),
                                 asymmetric,
                                 made_number(8, false, Grain::kChannel),
                                 made_number(8, true, Grain::kChannel),
                                 made_number(8, true, Grain::kBlock)}) {
    SCOPED_TRACE(describe({spec, std::nullopt}));
    MadeCheckpoint checkpoint;
    checkpoint.add(
        "model.embed_tokens", {spec, std::nullopt}, kWords, kColumns);
    checkpoint.declare();
    const MemoryReader reader(checkpoint.tensors);
    const auto opened = open_quantized(checkpoint.config, reader);
    const QuantizedLayerBuilder builder(*opened);
    backend::Backend& backend = backend::cpu_backend();
    const auto table = builder.build_embedding(
        reader, {"model.embed_tokens", kWords, kColumns, nullptr}, backend);
    ASSERT_NE(table, nullptr);

    Tensor decoded(DType::kF32, {kWords, kColumns});
    scheme_for(spec).decode(checkpoint.originals.at("model.embed_tokens"),
                            decoded.view());
    const std::vector<std::int32_t> ids = {0, 1, 127, 128, 1024, 1299, 1};
    Tensor y(DType::kF32, {static_cast<std::int64_t>(ids.size()), kColumns});
    table->forward(ids, y.view(), backend.stream());
    for (std::size_t t = 0; t < ids.size(); ++t) {
      const auto row = y.view().rows(static_cast<std::int64_t>(t), 1);
      const auto expected = decoded.view().rows(ids[t], 1);
      EXPECT_TRUE(std::ranges::equal(row.as<float>(), expected.as<float>()))
          << ids[t];
    }
    const std::vector<std::int32_t> outside = {kWords};
    Tensor one(DType::kF32, {1, kColumns});
    expect_error(ErrorCode::kInvalidArgument, "found 1300", [&] {
      table->forward(outside, one.view(), backend.stream());
    });
    expect_error(ErrorCode::kCorruptData, "expected (1301, 256)", [&] {
      static_cast<void>(builder.build_embedding(
          reader, {"model.embed_tokens", 1301, kColumns, nullptr}, backend));
    });
  }
}

}  // namespace
}  // namespace nibble::quant
