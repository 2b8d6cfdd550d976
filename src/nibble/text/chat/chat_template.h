#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace nibble::text {

namespace jinja {
struct Program;
}
class Tokenizer;

// One turn of a conversation.
struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

// The template that writes a conversation the way a model was trained to read
// it. Immutable and safe to use from several threads. The part of Jinja it
// knows is listed in docs/formats/tokenizer.md; anything else is refused with
// its name and line (kUnsupported), never ignored.
class ChatTemplate {
 public:
  // The template of a model directory: chat_template.jinja, or chat_template
  // of tokenizer_config.json (a string, or the entry "default" of a list), or
  // with a tokenizer.model the chat of its generation of Llama (llama_chat.h).
  // kNotFound when there is none. tokenizer: the directory's, where it is
  // loaded already.
  [[nodiscard]] static ChatTemplate load(const std::filesystem::path& directory,
                                         const Tokenizer* tokenizer = nullptr);

  // A template from its source. special_tokens: variables such as bos_token
  // (an object of strings).
  ChatTemplate(std::string_view source,
               const nlohmann::ordered_json& special_tokens);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // The text of messages, an array of {"role", "content", ...}. variables: an
  // object of further variables of the template. kInvalidArgument with the
  // template's own words when it refuses the conversation.
  [[nodiscard]] std::string render(
      const nlohmann::ordered_json& messages,
      bool add_generation_prompt,
      const nlohmann::ordered_json& variables) const;
  // Messages that people and models wrote: in the chats of Llama, special
  // tokens that they spell out are made ordinary text (kGuard).
  [[nodiscard]] std::string render(const std::vector<Message>& messages,
                                   bool add_generation_prompt) const;

  // Tokens that end the assistant's turn, as the chats of Llama know them;
  // none for a model that has its own template.
  [[nodiscard]] const std::vector<std::string>& stop_tokens() const {
    return stop_tokens_;
  }

 private:
  std::unique_ptr<const jinja::Program> program_;
  std::unique_ptr<const nlohmann::ordered_json> special_tokens_;
  std::vector<std::string> stop_tokens_;
  std::vector<std::string> guarded_;  // tokens that no message may spell
};

}  // namespace nibble::text
