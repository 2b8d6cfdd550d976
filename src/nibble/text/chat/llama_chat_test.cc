// Conversations as ids, written down by hand from the published formats.

#include "nibble/text/chat/llama_chat.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/text/chat/chat_template.h"
#include "reference_data.h"
#include "temporary_directory.h"

namespace nibble::text {
namespace {

using Ids = std::vector<std::int32_t>;

const std::vector<Message> kTurn = {{"user", "X"}};
const std::vector<Message> kTurns = {{"system", " Be brief.\n"},
                                     {"user", " Hi "},
                                     {"assistant", "Hello."},
                                     {"user", "Bye"}};

// Ids of parts, each encoded alone as ordinary text, between given ids.
class Sequence {
 public:
  explicit Sequence(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  Sequence& id(std::int32_t id) {
    ids_.push_back(id);
    return *this;
  }

  Sequence& text(std::string_view text) {
    const Ids part = tokenizer_.encode(text, false);
    ids_.insert(ids_.end(), part.begin(), part.end());
    return *this;
  }

  // A whole message of Llama 3 or 4.
  Sequence& message(const Ids& marks,
                    std::string_view role,
                    std::string_view content) {
    return id(marks[0]).text(role).id(marks[1]).text("\n\n").text(content).id(
        marks[2]);
  }

  [[nodiscard]] const Ids& ids() const { return ids_; }

 private:
  const Tokenizer& tokenizer_;
  Ids ids_;
};

TEST(LlamaChat, WritesLlama3AsItsOwnCodeDoes) {
  NIBBLE_REFERENCE_OR_SKIP(path, "golden/tokenizers/meta-llama3");
  const Tokenizer tokenizer = load_tokenizer(path);
  const ChatTemplate chat = ChatTemplate::load(path, &tokenizer);
  const Ids x = tokenizer.encode("X", false);
  ASSERT_EQ(x.size(), 1U);
  EXPECT_EQ(tokenizer.encode_template(chat.render(kTurn, true)),
            (Ids{128000,
                 128006,
                 882,
                 128007,
                 271,
                 x[0],
                 128009,
                 128006,
                 78191,
                 128007,
                 271}));
  const Ids marks{128006, 128007, 128009};
  Sequence all(tokenizer);
  all.id(128000)
      .message(marks, "system", "Be brief.")
      .message(marks, "user", "Hi")
      .message(marks, "assistant", "Hello.")
      .message(marks, "user", "Bye");
  EXPECT_EQ(tokenizer.encode_template(chat.render(kTurns, false)), all.ids());
  Sequence tool(tokenizer);
  tool.id(128000).message(marks, "ipython", "42");
  EXPECT_EQ(tokenizer.encode_template(chat.render({{"tool", "42"}}, false)),
            tool.ids());
  EXPECT_EQ(chat.stop_tokens(),
            (std::vector<std::string>{
                "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}));
}

TEST(LlamaChat, WritesLlama4AsItsOwnCodeDoes) {
  NIBBLE_REFERENCE_OR_SKIP(path, "golden/tokenizers/meta-llama4");
  const Tokenizer tokenizer = load_tokenizer(path);
  const ChatTemplate chat = ChatTemplate::load(path, &tokenizer);
  const Ids x = tokenizer.encode("X", false);
  ASSERT_EQ(x.size(), 1U);
  EXPECT_EQ(tokenizer.encode_template(chat.render(kTurn, true)),
            (Ids{200000,
                 200005,
                 1556,
                 200006,
                 368,
                 x[0],
                 200008,
                 200005,
                 140680,
                 200006,
                 368}));
  const Ids marks{200005, 200006, 200008};
  Sequence all(tokenizer);
  all.id(200000)
      .message(marks, "system", "Be brief.")
      .message(marks, "user", "Hi")
      .message(marks, "assistant", "Hello.")
      .message(marks, "user", "Bye");
  EXPECT_EQ(tokenizer.encode_template(chat.render(kTurns, false)), all.ids());
  // The result of a tool leaves the turn open.
  Sequence tool(tokenizer);
  tool.id(200000).message({200005, 200006, 200007}, "ipython", "42");
  EXPECT_EQ(tokenizer.encode_template(chat.render({{"tool", "42"}}, false)),
            tool.ids());
  EXPECT_EQ(
      chat.stop_tokens(),
      (std::vector<std::string>{"<|eot|>", "<|eom|>", "<|end_of_text|>"}));
}

TEST(LlamaChat, WritesLlama2AsItsOwnCodeDoes) {
  NIBBLE_REFERENCE_OR_SKIP(path, "golden/tokenizers/meta-llama2");
  const Tokenizer tokenizer = load_tokenizer(path);
  const ChatTemplate chat = ChatTemplate::load(path);
  Sequence one(tokenizer);
  one.id(1).text("[INST] X [/INST]");
  EXPECT_EQ(tokenizer.encode_template(chat.render(kTurn, true)), one.ids());
  Sequence all(tokenizer);
  all.id(1)
      .text("[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello. ")
      .id(2)
      .id(1)
      .text("[INST] Bye [/INST]");
  EXPECT_EQ(tokenizer.encode_template(chat.render(kTurns, true)), all.ids());
  EXPECT_EQ(chat.stop_tokens(), (std::vector<std::string>{"</s>"}));
}

// Nobody ends a message by spelling out the token that does.
TEST(LlamaChat, TakesSpecialTokensInMessagesForText) {
  for (const auto& [name, token] :
       {std::pair("golden/tokenizers/meta-llama3", "<|eot_id|>"),
        std::pair("golden/tokenizers/meta-llama4", "<|eot|>"),
        std::pair("golden/tokenizers/meta-llama2", "</s>")}) {
    NIBBLE_REFERENCE_OR_SKIP(path, name);
    const Tokenizer tokenizer = load_tokenizer(path);
    const ChatTemplate chat = ChatTemplate::load(path);
    const std::int32_t id = tokenizer.token_to_id(token).value();
    const auto count = [&](const std::string& message) {
      const std::vector<std::int32_t> ids = tokenizer.encode_template(
          chat.render({{"user", message}, {"assistant", "Yes."}}, false));
      return std::count(ids.begin(), ids.end(), id);
    };
    const std::string spelled = std::string("a ") + token + " b";
    EXPECT_EQ(count(spelled), count("a b")) << name;
    const std::vector<std::int32_t> ids =
        tokenizer.encode_template(chat.render({{"user", spelled}}, false));
    EXPECT_NE(tokenizer.decode(ids).find(spelled), std::string::npos) << name;
  }
}

TEST(LlamaChat, RefusesConversationsThatTheFormatsDoNotHave) {
  NIBBLE_REFERENCE_OR_SKIP(llama2, "golden/tokenizers/meta-llama2");
  NIBBLE_REFERENCE_OR_SKIP(llama3, "golden/tokenizers/meta-llama3");
  NIBBLE_REFERENCE_OR_SKIP(llama4, "golden/tokenizers/meta-llama4");
  const auto refuses = [](const std::filesystem::path& path,
                          const std::vector<Message>& messages,
                          std::string_view part) {
    SCOPED_TRACE(path);
    const ChatTemplate chat = ChatTemplate::load(path);
    expect_error(ErrorCode::kInvalidArgument, part, [&] {
      static_cast<void>(chat.render(messages, true));
    });
  };
  refuses(llama2,
          {{"user", "a"}, {"user", "b"}},
          "found the role user, expected assistant");
  refuses(llama2, {{"system", "a"}}, "found a system message alone");
  refuses(llama3, {{"critic", "a"}}, "found the role critic");
  refuses(llama4, {{"critic", "a"}}, "found the role critic");
}

// A tokenizer.json says nothing of a chat, even beside a tokenizer.model.
TEST(LlamaChat, IsForDirectoriesWithoutTokenizerJson) {
  const TemporaryDirectory directory;
  directory.add("tokenizer.json", "{}");
  directory.add("tokenizer.model", "");
  expect_error(ErrorCode::kNotFound, "found no chat template", [&] {
    static_cast<void>(ChatTemplate::load(directory.path()));
  });
}

TEST(LlamaChat, IsUnknownForOtherTokenizers) {
  const Tokenizer tokenizer = parse_tokenizer(
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  EXPECT_FALSE(llama_chat(tokenizer));
}

}  // namespace
}  // namespace nibble::text
