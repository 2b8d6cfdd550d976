// Codes, scales and zero points of checkpoints that llm-compressor wrote,
// against ours from the same source weights: equal bit for bit in reference
// numerics, and never a larger squared error in exact numerics.

#include <algorithm>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nibble/container/safetensors/reader.h"
#include "nibble/quant/core/registry.h"
#include "nibble/tensor/convert.h"
#include "reference_data.h"

namespace nibble::quant {
namespace {

struct Case {
  std::string name;  // directory
  NumberSpec spec;
};

NumberSpec integer(int bits, bool symmetric, std::int64_t group) {
  NumberSpec spec;
  spec.scheme = bits == 4 ? "int4" : "int8";
  spec.bits = bits;
  spec.symmetric = symmetric;
  spec.grain = group > 0 ? Grain::kGroup : Grain::kChannel;
  spec.group = group;
  return spec;
}

NumberSpec fp8(Grain grain) {
  NumberSpec spec;
  spec.scheme = "fp8";
  spec.floating = true;
  spec.grain = grain;
  spec.block_rows = grain == Grain::kBlock ? 128 : 0;
  spec.block_columns = spec.block_rows;
  return spec;
}

std::vector<Case> cases() {
  return {
      {"fable-dense-w4a16-g128", integer(4, true, 128)},
      {"fable-dense-w4a16-g32", integer(4, true, 32)},
      {"fable-dense-w4a16-g64-asym", integer(4, false, 64)},
      {"fable-dense-w4a16-channel-asym", integer(4, false, 0)},
      {"fable-dense-w4a8", integer(4, true, 128)},
      {"fable-dense-w8a16-channel", integer(8, true, 0)},
      {"fable-dense-w8a8", integer(8, true, 0)},
      {"fable-dense-w8a8-static", integer(8, true, 0)},
      {"fable-dense-fp8-a16", fp8(Grain::kChannel)},
      {"fable-dense-fp8-dynamic", fp8(Grain::kChannel)},
      {"fable-dense-fp8-static", fp8(Grain::kTensor)},
      {"fable-dense-fp8-block", fp8(Grain::kBlock)},
      {"fable-moe-w4a16-g128", integer(4, true, 128)},
      {"fable-moe-w8a8", integer(8, true, 0)},
      {"fable-moe-fp8-dynamic", fp8(Grain::kChannel)},
      {"fable-moe-fp8-block", fp8(Grain::kBlock)},
  };
}

// Columns [first, first + columns) of expert e of a stacked, input-major
// weight (experts, in, out), as an output-major matrix.
Tensor expert_matrix(const Tensor& stacked,
                     std::int64_t expert,
                     std::int64_t first,
                     std::int64_t rows) {
  const std::int64_t in = stacked.shape()[1];
  const std::int64_t out = stacked.shape()[2];
  Tensor matrix(DType::kBF16, {rows, in});
  const auto from = stacked.view().raw<std::uint16_t>();
  const auto to = matrix.view().raw<std::uint16_t>();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < in; ++c) {
      to[static_cast<std::size_t>(r * in + c)] =
          from[static_cast<std::size_t>((expert * in + c) * out + first + r)];
    }
  }
  return matrix;
}

// The source weight of a module, experts taken from their stack.
Tensor source_weight(const container::CheckpointReader& source,
                     const std::string& module) {
  if (const auto* plain = source.find(module + ".weight")) {
    return source.load_copy(*plain);
  }
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = module.find(kExperts) + kExperts.size();
  const std::size_t dot = module.find('.', at);
  const std::int64_t expert = std::stoll(module.substr(at, dot - at));
  const std::string stack = module.substr(0, at);
  const std::string part = module.substr(dot + 1);
  if (part == "down_proj") {
    const Tensor stacked = source.load_copy(source.get(stack + part));
    return expert_matrix(stacked, expert, 0, stacked.shape()[2]);
  }
  const Tensor stacked = source.load_copy(source.get(stack + "gate_up_proj"));
  const std::int64_t half = stacked.shape()[2] / 2;
  return expert_matrix(stacked, expert, part == "up_proj" ? half : 0, half);
}

// Unsigned fields of `bits` bits, lowest first, as signed codes.
std::vector<std::int8_t> unpack(const Tensor& packed, int bits) {
  std::vector<std::int8_t> codes;
  for (const std::uint8_t byte :
       packed.view().raw<std::int32_t>().empty()
           ? std::span<const std::uint8_t>()
           : std::span<const std::uint8_t>(
                 reinterpret_cast<const std::uint8_t*>(packed.view().data()),
                 packed.bytes())) {
    for (int shift = 0; shift < 8; shift += bits) {
      const int field = (byte >> shift) & ((1 << bits) - 1);
      codes.push_back(static_cast<std::int8_t>(field - (1 << (bits - 1))));
    }
  }
  return codes;
}

std::vector<std::int8_t> bytes_of(const Tensor& tensor) {
  std::vector<std::int8_t> bytes(tensor.bytes());
  std::memcpy(bytes.data(), tensor.view().data(), bytes.size());
  return bytes;
}

// Zero points lie down the rows: field r of column g is row r of group g.
std::vector<std::int8_t> unpack_zeros(const Tensor& packed,
                                      int bits,
                                      std::int64_t rows) {
  const std::int64_t groups = packed.shape()[1];
  const std::int64_t per_word = 32 / bits;
  std::vector<std::int8_t> zeros(static_cast<std::size_t>(rows * groups));
  const auto words = packed.view().as<std::int32_t>();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto word = static_cast<std::uint32_t>(
          words[static_cast<std::size_t>(r / per_word * groups + g)]);
      const auto field =
          static_cast<int>(word >> (r % per_word * bits)) & ((1 << bits) - 1);
      zeros[static_cast<std::size_t>(r * groups + g)] =
          static_cast<std::int8_t>(field - (1 << (bits - 1)));
    }
  }
  return zeros;
}

double squared_error(const Scheme& scheme,
                     const Quantized& quantized,
                     const Tensor& weight) {
  Tensor decoded(DType::kBF16, weight.shape());
  scheme.decode(quantized, decoded.view());
  const auto w = weight.view().raw<std::uint16_t>();
  const auto d = decoded.view().raw<std::uint16_t>();
  double sum = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double error = static_cast<double>(bf16_to_float(w[i])) -
                         static_cast<double>(bf16_to_float(d[i]));
    sum += error * error;
  }
  return sum;
}

class SchemeGolden : public ::testing::TestWithParam<Case> {
 protected:
  // Compares one module; adds the squared errors of both arithmetics.
  void compare(const container::CheckpointReader& golden,
               const container::CheckpointReader& source,
               const std::string& module) {
    const NumberSpec& spec = GetParam().spec;
    const Scheme& scheme = scheme_for(spec);
    const Tensor weight = source_weight(source, module);
    const auto encode = [&](Numerics numerics) {
      EncodeOptions options;
      options.numerics = numerics;
      return scheme.encode(spec, weight.view(), options);
    };
    const Quantized reference = encode(Numerics::kReference);
    EXPECT_EQ(bytes_of(reference.scales),
              bytes_of(golden.load_copy(golden.get(module + ".weight_scale"))))
        << module;
    if (const auto* packed = golden.find(module + ".weight_packed")) {
      EXPECT_EQ(bytes_of(reference.codes),
                unpack(golden.load_copy(*packed), spec.bits))
          << module;
    } else {
      EXPECT_EQ(bytes_of(reference.codes),
                bytes_of(golden.load_copy(golden.get(module + ".weight"))))
          << module;
    }
    if (!spec.symmetric) {
      EXPECT_EQ(bytes_of(*reference.zeros),
                unpack_zeros(
                    golden.load_copy(golden.get(module + ".weight_zero_point")),
                    spec.bits,
                    reference.rows))
          << module;
    }
    const double exact_error =
        squared_error(scheme, encode(Numerics::kExact), weight);
    const double reference_error = squared_error(scheme, reference, weight);
    EXPECT_LE(exact_error, reference_error) << module;
    exact_total_ += exact_error;
    reference_total_ += reference_error;
  }

  double exact_total_ = 0;
  double reference_total_ = 0;
};

TEST_P(SchemeGolden, ReferenceIsEqualAndExactIsNoWorse) {
  NIBBLE_REFERENCE_OR_SKIP(directory,
                           "golden/compressed-tensors/" + GetParam().name);
  const std::string model = GetParam().name.substr(
      0, GetParam().name.find('-', std::string_view("fable-").size()));
  const auto golden = container::open_safetensors(directory);
  const auto source = container::open_safetensors(
      std::filesystem::path(NIBBLE_SOURCE_DIR) / "models" / model);
  constexpr std::string_view kSuffix = ".weight_scale";
  int modules = 0;
  for (const auto& tensor : golden->tensors()) {
    if (tensor.name.ends_with(kSuffix)) {
      compare(*golden,
              *source,
              tensor.name.substr(0, tensor.name.size() - kSuffix.size()));
      ++modules;
    }
  }
  EXPECT_GT(modules, 20);
  std::cout << fmt::format(
      "{}: {} layers, squared error exact {:.6f}, reference {:.6f}, ratio "
      "{:.4f}\n",
      GetParam().name,
      modules,
      exact_total_,
      reference_total_,
      exact_total_ / reference_total_);
}

INSTANTIATE_TEST_SUITE_P(All,
                         SchemeGolden,
                         ::testing::ValuesIn(cases()),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace nibble::quant
