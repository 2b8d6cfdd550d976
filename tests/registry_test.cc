#include "nibble/quant/core/registry.h"

#include <functional>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"

namespace nibble::quant {
namespace {

using ::testing::HasSubstr;

Error refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing refused";
  return {ErrorCode::kInternal, "nothing refused"};
}

TEST(Registry, FindsEverySchemeByEachOfItsNames) {
  std::set<std::string_view> names;
  for (const Scheme* scheme : schemes()) {
    for (const std::string_view name : scheme->recipe_names()) {
      EXPECT_TRUE(names.insert(name).second) << name << " occurs twice";
      EXPECT_EQ(&scheme_named(name), scheme);
      NumberSpec spec;
      spec.scheme = name;
      EXPECT_EQ(&scheme_for(spec), scheme);
      EXPECT_TRUE(scheme->handles(spec));
    }
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"int4", "int8", "fp8"}));
}

TEST(Registry, FindsFormatsAndAlgorithmsByName) {
  for (const Format* format : formats()) {
    EXPECT_EQ(&format_named(format->name()), format);
  }
  for (const Algorithm* algorithm : algorithms()) {
    EXPECT_EQ(&algorithm_named(algorithm->name()), algorithm);
  }
  EXPECT_EQ(algorithm_named("rtn").needs(), Needs::kNothing);
}

TEST(Registry, SuggestsTheNearestName) {
  const Error scheme = refusal([] { static_cast<void>(scheme_named("itn4")); });
  EXPECT_EQ(scheme.code(), ErrorCode::kBadRecipe);
  EXPECT_THAT(scheme.what(), HasSubstr("found 'itn4'"));
  EXPECT_THAT(scheme.what(), HasSubstr("int4, int8, fp8, keep"));
  EXPECT_EQ(scheme.hint(), "did you mean int4?");
  const Error algorithm =
      refusal([] { static_cast<void>(algorithm_named("rnt")); });
  EXPECT_EQ(algorithm.code(), ErrorCode::kBadRecipe);
  EXPECT_THAT(algorithm.what(), HasSubstr("'rnt'"));
  const Error far =
      refusal([] { static_cast<void>(format_named("something else")); });
  EXPECT_EQ(far.hint(), "");
}

}  // namespace
}  // namespace nibble::quant
