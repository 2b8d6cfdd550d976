#include "nibble/text/chat/chat_template.h"

#include <cstdlib>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "reference_data.h"
#include "temporary_directory.h"

namespace nibble::text {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<Message> kHello = {{"system", "Be brief."}, {"user", " Hi "}};

TEST(ChatTemplate, WritesTheBundledModelsFormat) {
  const ChatTemplate chat = ChatTemplate::load(
      std::filesystem::path(NIBBLE_SOURCE_DIR) / "models/fable-moe");
  EXPECT_EQ(chat.render(kHello, true),
            "<|begin_of_text|>"
            "<|header_start|>system<|header_end|>\n\nBe brief.<|eot|>"
            "<|header_start|>user<|header_end|>\n\nHi<|eot|>"
            "<|header_start|>assistant<|header_end|>\n\n");
  EXPECT_EQ(chat.render({{"user", "Hi"}}, false),
            "<|begin_of_text|>"
            "<|header_start|>user<|header_end|>\n\nHi<|eot|>");
}

TEST(ChatTemplate, WritesSmolLm2sFormat) {
  const char* directory = std::getenv("NIBBLE_SMOLLM2");
  if (directory == nullptr) {
    GTEST_SKIP() << "NIBBLE_SMOLLM2 does not name a directory of "
                    "SmolLM2-135M-Instruct";
  }
  NIBBLE_REFERENCE_OR_SKIP(path, "reference/smollm2.json");
  const ChatTemplate chat = ChatTemplate::load(directory);
  const Json reference = Json::parse(read_text_file(path));
  for (const Json& prompt : reference.at("prompts")) {
    EXPECT_EQ(chat.render(prompt.at("messages"), true, Json::object()),
              prompt.at("text").get<std::string>());
  }
}

TEST(ChatTemplate, ItsOwnFileComesBeforeTheConfiguration) {
  const TemporaryDirectory directory;
  directory.add("tokenizer_config.json",
                R"({"chat_template": "config", "bos_token": {"content": "<s>"},
                    "eos_token": "</s>", "pad_token": null})");
  EXPECT_EQ(ChatTemplate::load(directory.path()).render({}, false), "config");
  directory.add("chat_template.jinja",
                "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}");
  EXPECT_EQ(ChatTemplate::load(directory.path()).render({}, false),
            "<s></s>False");
}

TEST(ChatTemplate, TheDefaultOfAListIsTaken) {
  const TemporaryDirectory directory;
  directory.add("tokenizer_config.json",
                R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                      {"name": "default", "template": "d"}]})");
  EXPECT_EQ(ChatTemplate::load(directory.path()).render({}, false), "d");
}

TEST(ChatTemplate, FurtherVariablesReachTheTemplate) {
  const ChatTemplate chat("{{ bos_token }}{{ date }}{{ tools }}",
                          Json{{"bos_token", "<s>"}});
  EXPECT_EQ(chat.render(Json::array(), false, Json{{"date", "today"}}),
            "<s>todayNone");
  EXPECT_EQ(chat.render(Json::array(), false, Json{{"bos_token", "!"}}),
            "!None");
}

TEST(ChatTemplate, MissingOrBrokenTemplatesAreRefused) {
  const TemporaryDirectory directory;
  const auto refuses = [&](ErrorCode code, const char* part) {
    expect_error(code, part, [&] {
      static_cast<void>(ChatTemplate::load(directory.path()));
    });
  };
  const auto configure = [&](const char* text) {
    directory.add("tokenizer_config.json", text);
  };
  refuses(ErrorCode::kNotFound, "found no chat template");
  configure(R"({"chat_template": null})");
  refuses(ErrorCode::kNotFound, "found no chat template");
  configure("{");
  refuses(ErrorCode::kCorruptData, "tokenizer_config.json: found no JSON");
  configure("[]");
  refuses(ErrorCode::kCorruptData, "expected an object");
  configure(R"({"chat_template": 5})");
  refuses(ErrorCode::kCorruptData, "chat_template: found number");
  configure(R"({"chat_template": [{"name": "rag", "template": ""}]})");
  refuses(ErrorCode::kCorruptData, "entry named default");
  configure(R"({"chat_template": "", "bos_token": 1})");
  refuses(ErrorCode::kCorruptData, "bos_token: found number");
  configure(R"({"chat_template": "a\n{% macro x() %}"})");
  refuses(ErrorCode::kUnsupported,
          "tokenizer_config.json: chat_template: line 2: tag 'macro'");
}

TEST(ChatTemplate, ItsOwnRefusalIsHandedOn) {
  const ChatTemplate chat(
      "{% if messages[0].role == 'system' %}\n"
      "{{ raise_exception('System role not supported') }}{% endif %}",
      Json::object());
  EXPECT_EQ(chat.render({{"user", "Hi"}}, true), "");
  expect_error(ErrorCode::kInvalidArgument,
               "chat template: line 2: the template refuses the "
               "conversation: System role not supported",
               [&] { static_cast<void>(chat.render(kHello, true)); });
}

}  // namespace
}  // namespace nibble::text
