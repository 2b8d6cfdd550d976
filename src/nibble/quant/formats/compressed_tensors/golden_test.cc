// Checkpoints that llm-compressor wrote: read, decoded, and written again.
#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>

#include "expect_error.h"
#include "nibble/base/files/json.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/formats/compressed_tensors/format.h"
#include "reference_data.h"

namespace nibble::quant::compressed_tensors {
namespace {

using nlohmann::json;

std::string sha256(std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_Digest(
      bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15U];
  }
  return text;
}

struct Golden {
  json config;
  std::unique_ptr<container::CheckpointReader> reader;
  json reference;
};

Golden open_golden(const std::filesystem::path& path) {
  return {read_json_object(path / "config.json"),
          container::open_safetensors(path / "model.safetensors"),
          read_json_object(path / "reference.json")};
}

class GoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, DecodesToTheReferenceAndIsWrittenBackByteForByte) {
  NIBBLE_REFERENCE_OR_SKIP(
      path, std::string("golden/compressed-tensors/") + GetParam());
  const Golden golden = open_golden(path);
  const Format& format = compressed_tensors_format();
  const auto opened = format.open(golden.config, *golden.reader);
  ASSERT_NE(opened, nullptr);
  const json& digests = golden.reference.at("decoded_bf16_sha256");
  const std::vector<std::string> modules = opened->modules();
  EXPECT_EQ(modules.size(), digests.size());
  for (const std::string& module : modules) {
    SCOPED_TRACE(module);
    const LayerSpec spec = *opened->spec_of(module);
    const Shape shape = opened->weight_shape(module);
    const Quantized whole = opened->unpack(module, 0, shape[0]);
    Tensor decoded(DType::kBF16, shape);
    scheme_for(spec.weight).decode(whole, decoded.view());
    EXPECT_EQ(sha256(decoded.view().byte_span()),
              digests.at(module + ".weight").get<std::string>());

    std::map<std::string, Tensor> written;
    for (const container::TensorInfo& tensor :
         format.plan(module, spec, shape[0], shape[1])) {
      written.emplace(tensor.name, Tensor::zeros(tensor.dtype, tensor.shape));
    }
    format.pack(module,
                spec,
                shape[0],
                0,
                whole,
                [&written](std::string_view name,
                           std::uint64_t offset,
                           std::span<const std::byte> bytes) {
                  std::ranges::copy(
                      bytes,
                      written.at(std::string(name)).view().byte_span().begin() +
                          static_cast<std::ptrdiff_t>(offset));
                });
    if (auto scale = opened->input_scale(module)) {
      // Calibration writes this one; it is no part of a tile.
      written.insert_or_assign(module + ".input_scale", std::move(*scale));
    }
    const std::vector<std::string> names = opened->tensors_of(module);
    ASSERT_EQ(written.size(), names.size());
    for (const std::string& name : names) {
      const Tensor original =
          golden.reader->load_copy(golden.reader->get(name));
      const Tensor& ours = written.at(name);
      EXPECT_EQ(ours.dtype(), original.dtype()) << name;
      EXPECT_EQ(ours.shape(), original.shape()) << name;
      EXPECT_TRUE(std::ranges::equal(ours.view().byte_span(),
                                     original.view().byte_span()))
          << name;
    }
  }
}

// Keys that newer releases write and older ones refuse, and those that only
// tell how numbers were chosen.
void strip(json& config) {
  config.erase("version");
  for (auto& [name, group] : config["config_groups"].items()) {
    group.erase("format");
    for (const char* args : {"weights", "input_activations"}) {
      if (group[args].is_object()) {
        for (const char* key : {"scale_dtype", "zp_dtype", "observer"}) {
          group[args].erase(key);
        }
      }
    }
  }
  const auto ignore = config["ignore"].get<std::set<std::string>>();
  config["ignore"] = ignore;
}

TEST_P(GoldenTest, OurConfigForTheSameSchemeSaysTheSame) {
  NIBBLE_REFERENCE_OR_SKIP(
      path, std::string("golden/compressed-tensors/") + GetParam());
  const Golden golden = open_golden(path);
  const auto opened =
      compressed_tensors_format().open(golden.config, *golden.reader);
  std::vector<LayerDecision> layers;
  for (const std::string& module : opened->modules()) {
    const Shape shape = opened->weight_shape(module);
    layers.push_back({module, shape[0], shape[1], opened->spec_of(module)});
  }
  for (const container::TensorInfo& tensor : golden.reader->tensors()) {
    const std::string& name = tensor.name;
    const bool linear = name.ends_with("_proj.weight") ||
                        name.ends_with("router.weight") ||
                        name == "lm_head.weight";
    std::string module = name.substr(0, name.rfind('.'));
    if (linear && !opened->spec_of(module)) {
      layers.push_back(
          {module, tensor.shape[0], tensor.shape[1], std::nullopt});
    }
  }
  json ours = compressed_tensors_format().config_entry(layers);
  json theirs = golden.config.at("quantization_config");
  strip(ours);
  strip(theirs);
  EXPECT_EQ(ours, theirs);
}

INSTANTIATE_TEST_SUITE_P(All,
                         GoldenTest,
                         testing::Values("fable-dense-fp8-a16",
                                         "fable-dense-fp8-block",
                                         "fable-dense-fp8-dynamic",
                                         "fable-dense-fp8-static",
                                         "fable-dense-w4a16-channel-asym",
                                         "fable-dense-w4a16-g128",
                                         "fable-dense-w4a16-g32",
                                         "fable-dense-w4a16-g64-asym",
                                         "fable-dense-w4a8",
                                         "fable-dense-w8a16-channel",
                                         "fable-dense-w8a8",
                                         "fable-dense-w8a8-static",
                                         "fable-moe-fp8-block",
                                         "fable-moe-fp8-dynamic",
                                         "fable-moe-w4a16-g128",
                                         "fable-moe-w8a8"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(GoldenRefusal, OtherFormatsAreRefusedByName) {
  NIBBLE_REFERENCE_OR_SKIP(root, "golden/compressed-tensors");
  const std::map<std::string, std::string> kCases = {
      {"fable-dense-w3a16-g128", "3-bit int weights"},
      {"fable-dense-nvfp4", "nvfp4-pack-quantized"},
      {"fable-dense-nvfp4a16", "nvfp4-pack-quantized"},
      {"fable-moe-nvfp4a16", "nvfp4-pack-quantized"},
      {"fable-dense-mxfp4a16", "mxfp4-pack-quantized"},
      {"fable-moe-mxfp4a16", "mxfp4-pack-quantized"},
      {"fable-dense-mxfp8a16", "mxfp8-quantized"}};
  for (const auto& [name, message] : kCases) {
    SCOPED_TRACE(name);
    const Golden golden = open_golden(root / name);
    expect_error(ErrorCode::kUnsupported, message, [&] {
      static_cast<void>(
          compressed_tensors_format().open(golden.config, *golden.reader));
    });
  }
}

}  // namespace
}  // namespace nibble::quant::compressed_tensors
