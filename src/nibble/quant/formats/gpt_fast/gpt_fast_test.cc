#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/base/error.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/container/torch_pickle/reader.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/formats/gpt_fast/int4_pack.h"
#include "nibble/quant/formats/gpt_fast/layers.h"
#include "nibble/tensor/convert.h"
#include "reference_data.h"
#include "temporary_directory.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(Int4PackTest, PutsTheWorkedExampleInPlace) {
  // out = 8, in = 32, T = 2, code (3 n + k) mod 16.
  std::vector<std::uint32_t> words(32, 0);
  for (std::int64_t n = 0; n < 8; ++n) {
    for (std::int64_t k = 0; k < 32; ++k) {
      const auto place = gpt_fast::nibble_place(n, k, 32, 2);
      words[static_cast<std::size_t>(place.word)] |=
          static_cast<std::uint32_t>((3 * n + k) % 16) << place.shift;
    }
  }
  EXPECT_THAT(std::vector(words.begin(), words.begin() + 4),
              ::testing::ElementsAre(
                  0x91918080u, 0xb3b3a2a2u, 0xd5d5c4c4u, 0xf7f7e6e6u));
}

class Int4ReferenceTest : public ::testing::TestWithParam<const char*> {};

// Words of PyTorch's CUDA operator, and its product, for every inner_k_tiles.
TEST_P(Int4ReferenceTest, AgreesWithPyTorch) {
  NIBBLE_REFERENCE_OR_SKIP(path, "reference/int4pack-reference.safetensors");
  const auto reader = container::open_safetensors(path);
  const auto load = [&](const std::string& part) {
    return reader->load_copy(reader->get(std::string(GetParam()) + "." + part));
  };
  const Tensor q = load("q");
  const Tensor packed = load("packed");
  const std::int64_t rows = q.shape()[0];
  const std::int64_t columns = q.shape()[1];
  const std::int64_t tiles = packed.shape()[3] * 2;
  const auto codes = q.view().as<std::uint8_t>();
  const auto words = packed.view().raw<std::uint32_t>();
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const auto place = gpt_fast::nibble_place(n, k, columns, tiles);
      ASSERT_EQ(words[static_cast<std::size_t>(place.word)] >> place.shift & 15,
                codes[static_cast<std::size_t>(n * columns + k)])
          << n << " " << k;
    }
  }

  // The layer made of these codes gives the operator's product.
  const Tensor pairs = load("scales_and_zeros");
  const std::int64_t groups = pairs.shape()[0];
  LayerSpec spec;
  spec.weight.scheme = "int4";
  spec.weight.bits = 4;
  spec.weight.symmetric = false;
  spec.weight.real_zero = true;
  spec.weight.grain = Grain::kGroup;
  spec.weight.group = columns / groups;
  const auto bits = pairs.view().raw<std::uint16_t>();
  const auto source = [&](std::int64_t first, std::int64_t count) {
    Quantized tile;
    tile.spec = spec.weight;
    tile.rows = count;
    tile.columns = columns;
    tile.codes = Tensor(DType::kI8, {count, columns});
    tile.scales = Tensor(DType::kBF16, {count, groups});
    tile.zeros = Tensor(DType::kBF16, {count, groups});
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        tile.codes.view()
            .as<std::int8_t>()[static_cast<std::size_t>(r * columns + c)] =
            static_cast<std::int8_t>(
                codes[static_cast<std::size_t>((first + r) * columns + c)] - 8);
      }
      for (std::int64_t g = 0; g < groups; ++g) {
        const auto from = static_cast<std::size_t>((g * rows + first + r) * 2);
        const auto to = static_cast<std::size_t>(r * groups + g);
        tile.scales.view().raw<std::uint16_t>()[to] = bits[from];
        tile.zeros->view().raw<std::uint16_t>()[to] = bits[from + 1];
      }
    }
    return tile;
  };
  backend::CpuBackend& backend = backend::cpu_backend();
  const auto layer =
      scheme_for(spec.weight)
          .make_linear(
              spec, rows, columns, source, std::nullopt, std::nullopt, backend);
  const Tensor x_bits = load("x");
  const Tensor y_bits = load("y");
  Tensor x(DType::kF32, x_bits.shape());
  convert_to_float(x_bits.view(), x.view().as<float>());
  std::vector<float> expected(
      static_cast<std::size_t>(y_bits.shape().elements()));
  convert_to_float(y_bits.view(), expected);
  Tensor y(DType::kF32, y_bits.shape());
  layer->forward(std::as_const(x).view(), y.view(), backend.stream());
  float largest = 0;
  for (const float value : expected) {
    largest = std::max(largest, std::abs(value));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    // PyTorch rounds weights and the result to BF16: 2^-8 each.
    EXPECT_NEAR(y.view().as<float>()[i], expected[i], largest * 0x1p-6F) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         Int4ReferenceTest,
                         ::testing::Values("n16.k256.t2",
                                           "n16.k256.t4",
                                           "n16.k256.t8",
                                           "n64.k1024.t2",
                                           "n64.k1024.t4",
                                           "n64.k1024.t8"));

class GptFastGoldenTest : public ::testing::Test {
 protected:
  // A file of the original tool with the bundled model's config beside it.
  load::CheckpointDirectory open(const fs::path& file) {
    fs::copy_file(
        fs::path(NIBBLE_SOURCE_DIR) / "models/fable-dense/config.json",
        directory_ / "config.json",
        fs::copy_options::overwrite_existing);
    fs::copy_file(file,
                  directory_ / file.filename(),
                  fs::copy_options::overwrite_existing);
    return load::open_checkpoint(directory_ / file.filename());
  }

  // Rows of the bundled model's linear under gpt-fast's name, from model.pth.
  static Tensor source_weight(const fs::path& folder,
                              const std::string& native) {
    const auto reader = container::open_torch_file(folder / "model.pth");
    return reader->load_copy(reader->get(native + ".weight"));
  }

  TemporaryDirectory temporary_;
  fs::path directory_ = temporary_.path();
};

TEST_F(GptFastGoldenTest, DecodesTheCodesOfTheOriginalTool) {
  NIBBLE_REFERENCE_OR_SKIP(folder, "golden/gpt-fast/fable-dense");
  const auto reference =
      container::open_safetensors(folder / "reference.safetensors");
  for (const std::string group : {"g32", "g128"}) {
    const auto checkpoint = open(folder / ("model_int4." + group + ".pth"));
    const auto packed = open_quantized(*checkpoint.config, *checkpoint.reader);
    ASSERT_NE(packed, nullptr);
    const std::string prefix = group + ".layers.3.feed_forward.w2.weight.";
    const Tensor codes = reference->load_copy(reference->get(prefix + "codes"));
    const Tensor decoded =
        reference->load_copy(reference->get(prefix + "decoded"));
    const std::string module = "model.layers.3.mlp.down_proj";
    const Shape shape = packed->weight_shape(module);
    const Quantized tile = packed->unpack(module, 0, shape[0]);
    const auto expected = std::as_const(codes).view().as<std::uint8_t>();
    const auto found = tile.codes.view().as<std::int8_t>();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(found[i] + 8, expected[i]) << i;
    }
    Tensor weight(DType::kF32, shape);
    scheme_for(tile.spec).decode(tile, weight.view());
    const auto values = std::as_const(decoded).view().as<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      // The original decodes to BF16.
      ASSERT_NEAR(weight.view().as<float>()[i],
                  values[i],
                  std::abs(values[i]) * 0x1p-8F + 1e-6F)
          << i;
    }
  }
}

// Quantizing model.pth in reference numerics and packing it gives the bytes of
// the original tool's file, for every linear.
TEST_F(GptFastGoldenTest, WritesTheBytesOfTheOriginalTool) {
  NIBBLE_REFERENCE_OR_SKIP(folder, "golden/gpt-fast/fable-dense");
  const Format& format = format_named("gpt_fast");
  for (const auto& [name, group] : {std::pair("model_int4.g32.pth", 32),
                                    std::pair("model_int4.g128.pth", 128),
                                    std::pair("model_int8.pth", 0)}) {
    const auto golden = container::open_torch_file(folder / name);
    LayerSpec spec;
    if (group == 0) {
      spec.weight.scheme = "int8";
      spec.weight.scale_dtype = DType::kF32;
    } else {
      spec.weight.scheme = "int4";
      spec.weight.bits = 4;
      spec.weight.symmetric = false;
      spec.weight.real_zero = true;
      spec.weight.grain = Grain::kGroup;
      spec.weight.group = group;
    }
    EncodeOptions options;
    // With float32 scales the exact rule is that of the int8 original.
    options.numerics = group == 0 ? Numerics::kExact : Numerics::kReference;
    std::size_t layers = 0;
    for (const auto& tensor : golden->tensors()) {
      if (!tensor.name.ends_with(".weight") || tensor.dtype == DType::kBF16) {
        continue;
      }
      const std::string native = tensor.name.substr(0, tensor.name.size() - 7);
      const Tensor weight = source_weight(folder, native);
      const std::int64_t rows = weight.shape()[0];
      std::map<std::string, std::vector<std::byte>, std::less<>> bytes;
      for (const auto& planned :
           format.plan(native, spec, rows, weight.shape()[1])) {
        EXPECT_EQ(planned.shape, golden->get(planned.name).shape);
        bytes[planned.name].resize(planned.bytes);
      }
      for (std::int64_t first = 0; first < rows; first += 64) {
        const std::int64_t count = std::min<std::int64_t>(64, rows - first);
        const Quantized tile =
            scheme_for(spec.weight)
                .encode(spec.weight,
                        std::as_const(weight).view().rows(first, count),
                        options);
        format.pack(native,
                    spec,
                    rows,
                    first,
                    tile,
                    [&](std::string_view part,
                        std::uint64_t offset,
                        std::span<const std::byte> data) {
                      auto& whole = bytes.find(part)->second;
                      ASSERT_LE(offset + data.size(), whole.size());
                      std::memcpy(
                          whole.data() + offset, data.data(), data.size());
                    });
      }
      for (const auto& [part, found] : bytes) {
        const Tensor expected = golden->load_copy(golden->get(part));
        EXPECT_EQ(std::memcmp(found.data(),
                              std::as_const(expected).view().data(),
                              found.size()),
                  0)
            << name << " " << part;
      }
      ++layers;
    }
    EXPECT_EQ(layers, 4u * 5 + 1);
  }
}

TEST_F(GptFastGoldenTest, ExactNumbersAreBetter) {
  NIBBLE_REFERENCE_OR_SKIP(folder, "golden/gpt-fast/fable-dense");
  const Tensor weight = source_weight(folder, "layers.0.attention.wqkv");
  NumberSpec spec;
  spec.scheme = "int4";
  spec.bits = 4;
  spec.symmetric = false;
  spec.real_zero = true;
  spec.grain = Grain::kGroup;
  spec.group = 32;
  std::vector<float> source(
      static_cast<std::size_t>(weight.shape().elements()));
  convert_to_float(std::as_const(weight).view(), source);
  const auto error = [&](Numerics numerics) {
    EncodeOptions options;
    options.numerics = numerics;
    Tensor decoded(DType::kF32, weight.shape());
    const Scheme& scheme = scheme_for(spec);
    scheme.decode(scheme.encode(spec, std::as_const(weight).view(), options),
                  decoded.view());
    double sum = 0;
    for (std::size_t i = 0; i < source.size(); ++i) {
      const double d = decoded.view().as<float>()[i] - source[i];
      sum += d * d;
    }
    return sum;
  };
  EXPECT_LT(error(Numerics::kExact), error(Numerics::kReference));
}

TEST_F(GptFastGoldenTest, SplitsFusedRowsInRotaryOrder) {
  NIBBLE_REFERENCE_OR_SKIP(folder, "golden/gpt-fast/fable-dense");
  const auto checkpoint = open(folder / "model_int8.pth");
  const auto packed = open_quantized(*checkpoint.config, *checkpoint.reader);
  const auto plain =
      load::open_checkpoint(fs::path(NIBBLE_SOURCE_DIR) / "models/fable-dense");
  for (const std::string part : {"q_proj", "k_proj", "v_proj"}) {
    const std::string module = "model.layers.2.self_attn." + part;
    const Tensor weight =
        plain.reader->load_copy(plain.reader->get(module + ".weight"));
    const Shape shape = packed->weight_shape(module);
    ASSERT_EQ(shape, weight.shape());
    const Quantized tile = packed->unpack(module, 0, shape[0]);
    Tensor decoded(DType::kF32, shape);
    scheme_for(tile.spec).decode(tile, decoded.view());
    std::vector<float> source(
        static_cast<std::size_t>(weight.shape().elements()));
    convert_to_float(std::as_const(weight).view(), source);
    double error = 0;
    double power = 0;
    for (std::size_t i = 0; i < source.size(); ++i) {
      const double d = decoded.view().as<float>()[i] - source[i];
      error += d * d;
      power += static_cast<double>(source[i]) * source[i];
    }
    EXPECT_LT(error / power, 1e-3) << part;  // rows in another order: about 2
  }
}

}  // namespace
}  // namespace nibble::quant
