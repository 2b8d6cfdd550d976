#include "nibble/quant/engines/rules.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble::quant {
namespace {

bool is_engine(std::string_view name) {
  for (const EngineCuts& engine : engines()) {
    if (engine.engine == name) {
      return true;
    }
  }
  return false;
}

bool is_source(std::string_view key) {
  for (const EngineSource& source : engine_sources()) {
    if (source.key == key) {
      return true;
    }
  }
  return false;
}

TEST(EngineRules, EveryRowNamesAnEngineAndASource) {
  EXPECT_GE(engine_rules().size(), 50U);
  for (const EngineRule& rule : engine_rules()) {
    EXPECT_TRUE(is_engine(rule.engine)) << rule.engine;
    EXPECT_TRUE(is_source(rule.source)) << rule.engine << " " << rule.source;
    EXPECT_GE(rule.rows_multiple, 1);
    EXPECT_GE(rule.columns_multiple, 1);
  }
}

TEST(EngineRules, EveryRefusalAndEveryDoubtSaysWhy) {
  for (const EngineRule& rule : engine_rules()) {
    if (rule.verdict != Verdict::kAccepted) {
      EXPECT_FALSE(rule.note.empty()) << rule.engine << ": " << describe(rule);
    }
  }
}

TEST(EngineRules, EverySourceIsUsedAndDated) {
  std::set<std::string_view> used;
  for (const EngineRule& rule : engine_rules()) {
    used.insert(rule.source);
  }
  for (const EngineCuts& engine : engines()) {
    used.insert(engine.source);
    EXPECT_EQ(engine.known, !engine.source.empty() && engine.note.empty())
        << engine.engine;
  }
  for (const EngineSource& source : engine_sources()) {
    EXPECT_TRUE(used.contains(source.key)) << source.key;
    EXPECT_FALSE(source.document.empty());
    EXPECT_FALSE(source.version.empty()) << source.key;
  }
}

TEST(EngineRules, AnUnknownEngineSuggestsTheNearest) {
  EXPECT_EQ(engine_named("vllm").engine, "vllm");
  expect_error(ErrorCode::kInvalidArgument, "engine: found vlm", [] {
    (void)engine_named("vlm");
  });
  expect_error(ErrorCode::kInvalidArgument, "vllm, sglang", [] {
    (void)engine_named("vlm");
  });
  expect_error(ErrorCode::kInvalidArgument, "did you mean vllm?", [] {
    (void)engine_named("vlm");
  });
  expect_error(ErrorCode::kInvalidArgument, "found onnxruntime", [] {
    (void)engine_named("onnxruntime");
  });
  expect_error(ErrorCode::kInvalidArgument, "nibble engines", [] {
    (void)engine_named("onnxruntime");
  });
}

TEST(EngineRules, AFormIsReadableText) {
  static constexpr int kBits[] = {4, 8};
  static constexpr std::int64_t kGroups[] = {32, 128};
  EngineRule rule;
  rule.number = "int";
  rule.bits = kBits;
  rule.grains = kByGroup | kByChannel;
  rule.groups = kGroups;
  rule.symmetry = Symmetry::kSymmetric;
  rule.inputs = InputKind::kNone;
  EXPECT_EQ(describe(rule),
            "int of 4 or 8 bits by group of 32, 128 or channel, symmetric, "
            "weights alone");
  EXPECT_EQ(describe(EngineRule{}), "any number");
}

}  // namespace
}  // namespace nibble::quant
