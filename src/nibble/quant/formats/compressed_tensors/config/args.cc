#include "nibble/quant/formats/compressed_tensors/config/args.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/quant/formats/compressed_tensors/config/json_fields.h"

namespace nibble::quant::compressed_tensors {
namespace {

enum class Dynamic { kNo, kYes, kLocal };

// An args object as the file spells it, types checked.
struct Args {
  std::int64_t bits = 8;
  bool floating = false;
  bool symmetric = true;
  std::string strategy;
  std::int64_t group = 0;  // 0 = absent, -1 = whole rows
  std::int64_t block_rows = 0;
  std::int64_t block_columns = 0;
  Dynamic dynamic = Dynamic::kNo;
};

// [128, 128], or "128x128" as releases up to 0.10 wrote it.
void read_block(const nlohmann::json& value,
                const std::string& where,
                Args& args) {
  bool read = false;
  if (value.is_array() && value.size() == 2 && value[0].is_number_integer() &&
      value[1].is_number_integer()) {
    args.block_rows = value[0].get<std::int64_t>();
    args.block_columns = value[1].get<std::int64_t>();
    read = true;
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const char* end = text.data() + text.size();
    const auto rows = std::from_chars(text.data(), end, args.block_rows);
    if (rows.ec == std::errc() && rows.ptr != end && *rows.ptr == 'x') {
      const auto columns =
          std::from_chars(rows.ptr + 1, end, args.block_columns);
      read = columns.ec == std::errc() && columns.ptr == end;
    }
  }
  constexpr std::int64_t kLargest = 1 << 20;
  NIBBLE_CHECK(read && args.block_rows > 0 && args.block_rows <= kLargest &&
                   args.block_columns > 0 && args.block_columns <= kLargest,
               kCorruptData,
               "config.json: {}.block_structure: found {}, expected [rows, "
               "columns]",
               where,
               printable(value.dump()));
}

Dynamic read_dynamic(const nlohmann::json& object, const std::string& where) {
  const nlohmann::json* value = field(object, "dynamic");
  if (value == nullptr || *value == false) {
    return Dynamic::kNo;
  }
  if (*value == true) {
    return Dynamic::kYes;
  }
  NIBBLE_CHECK(*value == "local",
               kCorruptData,
               "config.json: {}.dynamic: found {}, expected true, false or "
               "\"local\"",
               where,
               printable(value->dump()));
  return Dynamic::kLocal;
}

// Only the order "group" changes what is stored: a group index for each
// column. "weight" (and its older spellings) sorts while codes are chosen.
void check_actorder(const nlohmann::json& object, const std::string& where) {
  const nlohmann::json* value = field(object, "actorder");
  if (value == nullptr || *value == false || *value == "weight" ||
      *value == "static") {
    return;
  }
  NIBBLE_CHECK(*value == true || *value == "group" || *value == "dynamic",
               kCorruptData,
               "config.json: {}.actorder: found {}, expected null, \"weight\" "
               "or \"group\"",
               where,
               printable(value->dump()));
  fail_with_hint(ErrorCode::kUnsupported,
                 "quantize the source with actorder \"weight\"",
                 "config.json: {}.actorder: found \"group\" (columns in "
                 "another order, weight_g_idx), expected null or \"weight\"",
                 where);
}

// scale_dtype repeats the dtype of the scales where these are floats of 16 or
// 32 bits, and otherwise says that this is an NVFP4 or MX form.
void check_dtypes(const nlohmann::json& object, const std::string& where) {
  const std::string scales = text_field(object, where, "scale_dtype", "");
  NIBBLE_CHECK(scales != "torch.float8_e4m3fn" && scales != "torch.uint8",
               kUnsupported,
               "config.json: {}.scale_dtype: found {} ({}), expected scales "
               "of 16 or 32 bits",
               where,
               scales,
               scales == "torch.uint8" ? "an MX form" : "NVFP4");
  NIBBLE_CHECK(scales.empty() || scales == "torch.bfloat16" ||
                   scales == "torch.float16" || scales == "torch.float32",
               kCorruptData,
               "config.json: {}.scale_dtype: found {}, expected null or a "
               "torch dtype of floats",
               where,
               printable(scales));
  const std::string zeros = text_field(object, where, "zp_dtype", "");
  NIBBLE_CHECK(zeros.empty() || zeros == "torch.int8",
               kUnsupported,
               "config.json: {}.zp_dtype: found {}, expected torch.int8",
               where,
               printable(zeros));
}

std::string derived_strategy(const Args& args) {
  if (args.group > 0) {
    return "group";
  }
  return args.group == -1 ? "channel" : "tensor";
}

void check_strategy(const Args& args, const std::string& where) {
  static constexpr std::array<std::string_view, 7> kAll = {"tensor",
                                                           "channel",
                                                           "group",
                                                           "block",
                                                           "token",
                                                           "tensor_group",
                                                           "attn_head"};
  NIBBLE_CHECK(std::find(kAll.begin(), kAll.end(), args.strategy) != kAll.end(),
               kCorruptData,
               "config.json: {}.strategy: found '{}', expected tensor, "
               "channel, group, block or token",
               where,
               printable(args.strategy));
  NIBBLE_CHECK(args.strategy != "tensor_group" && args.strategy != "attn_head",
               kUnsupported,
               "config.json: {}.strategy: found '{}', expected tensor, "
               "channel, group, block or token",
               where,
               args.strategy);
  const bool grouped = args.strategy == "group";
  NIBBLE_CHECK(grouped == (args.group > 0),
               kCorruptData,
               "config.json: {}.group_size: found {} with the strategy {}, "
               "expected a size above 0 with the strategy group and with no "
               "other",
               where,
               args.group,
               args.strategy);
  NIBBLE_CHECK((args.strategy == "block") == (args.block_rows > 0),
               kCorruptData,
               "config.json: {}.block_structure: found {} with the strategy "
               "{}, expected it with the strategy block and with no other",
               where,
               args.block_rows > 0 ? "one" : "none",
               args.strategy);
}

Args read_args(const nlohmann::json& object, const std::string& where) {
  check_keys(object,
             where,
             {"num_bits",
              "type",
              "symmetric",
              "strategy",
              "group_size",
              "block_structure",
              "dynamic",
              "actorder",
              "observer",
              "observer_kwargs",
              "scale_dtype",
              "zp_dtype"});
  Args args;
  const std::string type = text_field(object, where, "type", "int");
  NIBBLE_CHECK(type == "int" || type == "float",
               kCorruptData,
               "config.json: {}.type: found '{}', expected int or float",
               where,
               printable(type));
  args.floating = type == "float";
  args.bits = integer_field(object, where, "num_bits", 8);
  NIBBLE_CHECK(args.floating ? args.bits == 4 || args.bits == 8
                             : args.bits >= 1 && args.bits <= 8,
               kCorruptData,
               "config.json: {}.num_bits: found {}, expected {}",
               where,
               args.bits,
               args.floating ? "4 or 8" : "1 to 8");
  args.symmetric = bool_field(object, where, "symmetric", true);
  args.group = integer_field(object, where, "group_size", 0);
  NIBBLE_CHECK(args.group >= -1,
               kCorruptData,
               "config.json: {}.group_size: found {}, expected -1 or more",
               where,
               args.group);
  if (const nlohmann::json* block = field(object, "block_structure")) {
    read_block(*block, where, args);
  }
  args.dynamic = read_dynamic(object, where);
  args.strategy = text_field(object, where, "strategy", "");
  if (args.strategy.empty()) {
    args.strategy = args.block_rows > 0 ? "block" : derived_strategy(args);
  }
  check_dtypes(object, where);
  check_strategy(args, where);
  return args;
}

NumberSpec spec_of(const Args& args) {
  NumberSpec spec;
  spec.bits = static_cast<int>(args.bits);
  spec.floating = args.floating;
  spec.scheme = fmt::format("{}{}", args.floating ? "fp" : "int", args.bits);
  spec.symmetric = args.symmetric;
  if (args.strategy == "group") {
    spec.grain = Grain::kGroup;
    spec.group = args.group;
  } else if (args.strategy == "block") {
    spec.grain = Grain::kBlock;
    spec.block_rows = args.block_rows;
    spec.block_columns = args.block_columns;
  } else if (args.strategy == "tensor") {
    spec.grain = Grain::kTensor;
  } else if (args.strategy == "token") {
    spec.grain = Grain::kToken;
  } else {
    spec.grain = Grain::kChannel;
  }
  return spec;
}

nlohmann::json args_of(const NumberSpec& spec) {
  nlohmann::json args = {{"num_bits", spec.bits},
                         {"type", spec.floating ? "float" : "int"},
                         {"symmetric", spec.symmetric},
                         {"strategy", grain_name(spec.grain)},
                         {"group_size", nullptr},
                         {"block_structure", nullptr},
                         {"dynamic", false},
                         {"actorder", nullptr},
                         {"observer", "minmax"},
                         {"observer_kwargs", nlohmann::json::object()}};
  if (spec.grain == Grain::kGroup) {
    args["group_size"] = spec.group;
  } else if (spec.grain == Grain::kBlock) {
    args["block_structure"] = {spec.block_rows, spec.block_columns};
  }
  return args;
}

}  // namespace

NumberSpec weight_spec(const nlohmann::json& object, const std::string& where) {
  const Args args = read_args(object, where);
  check_actorder(object, where);
  NIBBLE_CHECK(args.dynamic == Dynamic::kNo,
               kCorruptData,
               "config.json: {}.dynamic: found dynamic weights, expected false",
               where);
  NIBBLE_CHECK(args.strategy != "token",
               kCorruptData,
               "config.json: {}.strategy: found token for weights, expected "
               "tensor, channel, group or block",
               where);
  const bool supported = args.bits == 8 || (args.bits == 4 && !args.floating);
  if (!supported) {
    fail_with_hint(
        ErrorCode::kUnsupported,
        "quantize the source to int4, int8 or fp8",
        "config.json: {}.num_bits: found {}-bit {} weights, expected "
        "integers of 4 or 8 bits or floats of 8",
        where,
        args.bits,
        args.floating ? "float" : "int");
  }
  NIBBLE_CHECK(args.symmetric || !args.floating,
               kCorruptData,
               "config.json: {}.symmetric: found false for floats, expected "
               "true",
               where);
  return spec_of(args);
}

NumberSpec input_spec(const nlohmann::json& object, const std::string& where) {
  const Args args = read_args(object, where);
  NIBBLE_CHECK(args.strategy != "channel" && args.strategy != "block",
               kCorruptData,
               "config.json: {}.strategy: found {} for inputs, expected token, "
               "tensor or group",
               where,
               args.strategy);
  NIBBLE_CHECK(args.bits == 8,
               kUnsupported,
               "config.json: {}.num_bits: found {}-bit inputs, expected 8",
               where,
               args.bits);
  NIBBLE_CHECK(args.symmetric || !args.floating,
               kCorruptData,
               "config.json: {}.symmetric: found false for floats, expected "
               "true",
               where);
  // One scale a tensor that is not stored would depend on which tokens are
  // computed together; a stored one a token or group cannot be.
  NIBBLE_CHECK((args.strategy == "tensor") == (args.dynamic == Dynamic::kNo) &&
                   args.dynamic != Dynamic::kLocal,
               kUnsupported,
               "config.json: {}.dynamic: found {} inputs with the strategy {}, "
               "expected dynamic ones a token or group, or static ones a "
               "tensor",
               where,
               args.dynamic == Dynamic::kNo ? "static" : "dynamic",
               args.strategy);
  NIBBLE_CHECK(args.symmetric || args.strategy != "tensor",
               kUnsupported,
               "config.json: {}.symmetric: found static asymmetric inputs "
               "(input_zero_point), expected symmetric ones",
               where);
  return spec_of(args);
}

nlohmann::json weight_args(const NumberSpec& spec) {
  return args_of(spec);
}

nlohmann::json input_args(const NumberSpec& spec) {
  nlohmann::json args = args_of(spec);
  if (spec.grain != Grain::kTensor) {
    args["dynamic"] = true;
    args["observer"] = nullptr;
  }
  return args;
}

}  // namespace nibble::quant::compressed_tensors
