#include "nibble/base/ranks/ranks.h"

#include <algorithm>
#include <exception>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"

namespace nibble {
namespace {

using nlohmann::json;

class SingleRank final : public Ranks {
 public:
  [[nodiscard]] int rank() const override { return 0; }

  [[nodiscard]] int count() const override { return 1; }

  [[nodiscard]] int count_here() const override { return 1; }

  std::vector<std::string> gather(const std::string& text) override {
    return {text};
  }

  void abort(int status) override { std::_Exit(status); }
};

std::string packed(const Error& error) {
  return json{{"code", static_cast<int>(error.code())},
              {"what", error.what()},
              {"hint", error.hint()}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

// The error of a rank; its number stands before it when others differ.
[[noreturn]] void throw_packed(const std::vector<std::string>& texts,
                               std::size_t rank) {
  const json error = json::parse(texts[rank]);
  const bool everywhere =
      std::all_of(texts.begin(), texts.end(), [&](const std::string& text) {
        return text == texts[rank];
      });
  const std::string what = error.at("what").get<std::string>();
  throw Error(static_cast<ErrorCode>(error.at("code").get<int>()),
              everywhere ? what : fmt::format("rank {}: {}", rank, what),
              error.at("hint").get<std::string>());
}

}  // namespace

void Ranks::together(FunctionRef<void()> step) {
  if (count() == 1) {
    step();
    return;
  }
  std::string failure;
  try {
    step();
  } catch (const Error& error) {
    failure = packed(error);
  } catch (const std::filesystem::filesystem_error& error) {
    failure = packed(Error(ErrorCode::kIo, error.what()));
  }
  const std::vector<std::string> failures = gather(failure);
  for (std::size_t i = 0; i < failures.size(); ++i) {
    if (!failures[i].empty()) {
      failed_together_ = true;
      throw_packed(failures, i);
    }
  }
}

std::unique_ptr<Ranks> single_rank() {
  return std::make_unique<SingleRank>();
}

}  // namespace nibble
