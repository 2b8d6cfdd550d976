#include "nibble/quant/pipeline/check/receipt_accounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nibble::quant {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json receipt() {
  return {{"tensors",
           {{{"name", "a.weight"},
             {"dtype", "BF16"},
             {"shape", {2, 3}},
             {"fate", "copied"},
             {"outputs", {{{"name", "a.weight"}}}}},
            {{"name", "b"},
             {"dtype", "F32"},
             {"shape", {4}},
             {"fate", "dropped"},
             {"reason", "a buffer"}}}}};
}

std::vector<container::TensorInfo> source() {
  std::vector<container::TensorInfo> tensors(2);
  tensors[0].name = "a.weight";
  tensors[0].dtype = DType::kBF16;
  tensors[0].shape = {2, 3};
  tensors[1].name = "b";
  tensors[1].dtype = DType::kF32;
  tensors[1].shape = {4};
  return tensors;
}

TEST(ReceiptAccounts, NothingIsWrongWithACompleteOne) {
  EXPECT_THAT(receipt_problems(receipt()), IsEmpty());
  EXPECT_THAT(source_problems(receipt(), source()), IsEmpty());
}

TEST(ReceiptAccounts, FatesReasonsAndOutputsMustBeThere) {
  json damaged = receipt();
  damaged["tensors"][0].erase("outputs");
  damaged["tensors"][1].erase("reason");
  EXPECT_THAT(receipt_problems(damaged),
              ElementsAre(HasSubstr("a.weight: found no outputs"),
                          HasSubstr("b: found it dropped")));
  damaged["tensors"][0]["fate"] = "lost";
  EXPECT_THAT(receipt_problems(damaged).front(), HasSubstr("the fate lost"));
}

TEST(ReceiptAccounts, EveryTensorOfTheSourceHasItsEntry) {
  auto more = source();
  more[0].name = "c";
  EXPECT_THAT(
      source_problems(receipt(), more),
      ElementsAre(HasSubstr("c: found it in the source, but the "
                            "receipt does not account for it"),
                  HasSubstr("a.weight: found it in the receipt, but not")));
}

// Extra state of a native file is dropped, and no tensor of the form that the
// file is seen in.
TEST(ReceiptAccounts, WhatIsDroppedNeedNotBeATensor) {
  auto fewer = source();
  fewer.pop_back();
  EXPECT_THAT(source_problems(receipt(), fewer), ElementsAre());
}

TEST(ReceiptAccounts, TypeAndShapeAreThoseOfTheSource) {
  auto other = source();
  other[0].shape = {3, 2};
  other[1].dtype = DType::kBF16;
  EXPECT_THAT(source_problems(receipt(), other),
              ElementsAre(HasSubstr("found BF16 (3, 2) in the source, expected "
                                    "BF16 (2, 3)"),
                          HasSubstr("found BF16 (4)")));
}

TEST(ReceiptAccounts, ATensorHasOneEntry) {
  json twice = receipt();
  twice["tensors"].push_back(twice["tensors"][0]);
  EXPECT_THAT(source_problems(twice, source()),
              ElementsAre(HasSubstr("a.weight: found two entries")));
}

}  // namespace
}  // namespace nibble::quant
