#include "nibble/report/model_report.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/pipeline/quantize.h"
#include "temporary_directory.h"

namespace nibble::report {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// The bundled model, quantized into a directory of its own.
class ModelReports : public testing::Test {
 protected:
  ModelReports() {
    const load::CheckpointDirectory source =
        load::open_checkpoint(fs::path(NIBBLE_SOURCE_DIR) / "models/fable-moe");
    quant::QuantizeOptions options;
    options.output = out_;
    const std::atomic<bool> stop{false};
    (void)quant::quantize(
        source, quant::load_recipe("int4"), options, null_progress(), stop);
  }

  void change_receipt(const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json receipt =
        nlohmann::json::parse(read_text_file(out_ / "nibble.json"));
    change(receipt);
    write_file_atomically(out_ / "nibble.json", receipt.dump());
  }

  TemporaryDirectory scratch_;
  fs::path out_ = scratch_.path() / "model-int4";
};

TEST_F(ModelReports, CollectsFiguresSizesAndScales) {
  const ModelReport report = collect_report(out_, null_progress());
  EXPECT_EQ(report.name, "model-int4");
  EXPECT_EQ(report.family, "llama4");
  EXPECT_EQ(report.layers.size(), 60U);
  ASSERT_TRUE(report.receipt);
  EXPECT_EQ(report.receipt->recipe_name, "int4");
  bool experts = false;
  for (const LayerFigures& layer : report.layers) {
    EXPECT_GT(layer.relative_mse, 0);
    EXPECT_GT(layer.parameters, 0);
    EXPECT_GE(layer.layer, 0);
    experts = experts || layer.kind == "expert";
  }
  EXPECT_TRUE(experts);
  std::uint64_t bytes = 0;
  for (const KindSize& size : report.sizes) {
    bytes += size.bytes;
  }
  EXPECT_EQ(bytes, report.bytes);
  ASSERT_EQ(report.scales.size(), 3U);
  for (const ScaleFigures& scale : report.scales) {
    EXPECT_GT(scale.count, 0U);
    EXPECT_EQ(scale.unusable, 0U);
    EXPECT_LE(scale.smallest, scale.median * 1.1);
    EXPECT_LE(scale.median, scale.largest * 1.1);
  }
}

TEST_F(ModelReports, ThePageShowsAllOfItAndLeadsNowhere) {
  const std::string page = render(collect_report(out_, null_progress()));
  for (const char* part : {"Error by layer and kind",
                           "The 10 matrices that lost most",
                           "Size by kind",
                           "Scales",
                           "What became of the source",
                           "int4 group 128"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  for (const char* outside :
       {"<script", "http://", "https://", "<img", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
}

TEST_F(ModelReports, WithoutAReceiptErrorsAreNotKnown) {
  fs::remove(out_ / "nibble.json");
  const ModelReport report = collect_report(out_, null_progress());
  EXPECT_FALSE(report.receipt);
  EXPECT_TRUE(report.layers.empty());
  EXPECT_EQ(report.scales.size(), 3U);
  const std::string page = render(report);
  EXPECT_THAT(page, HasSubstr("Errors are not known"));
  EXPECT_THAT(page, HasSubstr("Scales"));
}

TEST_F(ModelReports, NamesInAReceiptAreText) {
  change_receipt([](nlohmann::json& receipt) {
    receipt["source"]["path"] = "</p><script>alert(1)</script>";
    receipt["tensors"][0]["fate"] = "<b>copied";
    for (nlohmann::json& tensor : receipt["tensors"]) {
      if (tensor.contains("layers")) {
        tensor["layers"][0]["module"] = "a\"onload=\"x<script>";
        tensor["layers"][0]["relative_mse"] = 9.0;
      }
    }
  });
  const std::string page = render(collect_report(out_, null_progress()));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("\"onload")));
  EXPECT_THAT(page, HasSubstr("a&quot;onload=&quot;x&lt;script&gt;"));
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;copied"));
}

TEST_F(ModelReports, AReceiptOfAnotherFormIsRefused) {
  change_receipt([](nlohmann::json& receipt) { receipt["tensors"] = 7; });
  expect_error(ErrorCode::kCorruptData, "nibble.json", [&] {
    (void)collect_report(out_, null_progress());
  });
}

TEST(ModelReport, ADenseModelHasSizesOnly) {
  const ModelReport report = collect_report(
      fs::path(NIBBLE_SOURCE_DIR) / "models/fable-dense", null_progress());
  EXPECT_TRUE(report.scales.empty());
  EXPECT_THAT(render(report), HasSubstr("Size by kind"));
}

TEST(ModelReport, ThousandsOfLayersStayReadable) {
  ModelReport report;
  report.name = "deep";
  report.receipt.emplace();
  for (int layer = 0; layer < 4000; ++layer) {
    report.layers.push_back({"layers." + std::to_string(layer) + ".up_proj",
                             "mlp",
                             layer,
                             "int4",
                             100,
                             1e-2 + 1e-6 * layer,
                             0.99,
                             0.1});
  }
  const std::string page = render(report);
  EXPECT_LT(page.size(), 200'000U);
  EXPECT_THAT(page, HasSubstr("layer 0-24"));
}

TEST(ModelReport, AnErrorOfNothingIsInTheTableOnly) {
  ModelReport report;
  report.name = "exact";
  report.receipt.emplace();
  report.layers.push_back({"a", "mlp", 0, "int8", 1, 0, 1, 0});
  const std::string page = render(report);
  EXPECT_THAT(page, HasSubstr("0.000e+00"));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(page, Not(HasSubstr("inf\"")));
}

}  // namespace
}  // namespace nibble::report
