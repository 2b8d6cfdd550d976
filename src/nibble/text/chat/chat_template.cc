#include "nibble/text/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <optional>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/text/chat/llama_chat.h"
#include "nibble/text/jinja/evaluate.h"
#include "nibble/text/jinja/limits.h"
#include "nibble/text/jinja/program.h"
#include "nibble/text/tokenizer/tokenizer.h"

namespace nibble::text {
namespace {

using Json = nlohmann::ordered_json;

// The variables that templates get from tokenizer_config.json.
constexpr std::array<const char*, 7> kSpecialTokens = {"bos_token",
                                                       "eos_token",
                                                       "unk_token",
                                                       "sep_token",
                                                       "pad_token",
                                                       "cls_token",
                                                       "mask_token"};

Json read_config(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    return Json::object();
  }
  Json config;
  try {
    config = Json::parse(read_text_file(path));
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::kCorruptData,
         "{}: found no JSON: {}",
         path.string(),
         printable(error.what()));
  }
  NIBBLE_CHECK(config.is_object(),
               kCorruptData,
               "{}: found {}, expected an object",
               path.string(),
               config.type_name());
  return config;
}

// Each token is a string, or an object with its content.
Json special_tokens(const Json& config, const std::string& where) {
  Json tokens = Json::object();
  for (const char* name : kSpecialTokens) {
    const auto token = config.find(name);
    if (token == config.end() || token->is_null()) {
      continue;
    }
    const Json& content = token->is_object() && token->contains("content")
                              ? token->at("content")
                              : *token;
    NIBBLE_CHECK(content.is_string(),
                 kCorruptData,
                 "{}: {}: found {}, expected a string or {{\"content\": ...}}",
                 where,
                 name,
                 content.type_name());
    tokens[name] = content;
  }
  return tokens;
}

// The template text that chat_template holds, if any.
std::optional<std::string> configured_template(const Json& config,
                                               const std::string& where) {
  const auto entry = config.find("chat_template");
  if (entry == config.end() || entry->is_null()) {
    return std::nullopt;
  }
  if (entry->is_string()) {
    return entry->get<std::string>();
  }
  if (entry->is_array()) {
    for (const Json& named : *entry) {
      if (named.is_object() && named.contains("name") &&
          named.at("name") == "default" && named.contains("template") &&
          named.at("template").is_string()) {
        return named.at("template").get<std::string>();
      }
    }
  }
  fail(ErrorCode::kCorruptData,
       "{}: chat_template: found {}, expected a string or a list with an "
       "entry named default",
       where,
       entry->type_name());
}

void append(jinja::Dict& variables, const Json& object, std::string_view what) {
  NIBBLE_CHECK(object.is_object(),
               kInvalidArgument,
               "{}: found {}, expected an object",
               what,
               object.type_name());
  for (const auto& member : object.items()) {
    const std::string& name = member.key();
    jinja::Value value = jinja::Value::from_json(member.value());
    const auto known =
        std::find_if(variables.begin(), variables.end(), [&](const auto& v) {
          return v.first == name;
        });
    if (known != variables.end()) {
      known->second = std::move(value);
    } else {
      variables.emplace_back(name, std::move(value));
    }
  }
}

// text with a guard behind the first byte of everything that is spelled like
// one of these tokens.
std::string guarded(std::string text, const std::vector<std::string>& tokens) {
  for (const std::string& token : tokens) {
    if (token.size() < 2) {
      continue;
    }
    for (std::size_t at = text.find(token); at != std::string::npos;
         at = text.find(token, at)) {
      text.insert(at + 1, kGuard);
    }
  }
  return text;
}

}  // namespace

ChatTemplate ChatTemplate::load(const std::filesystem::path& directory,
                                const Tokenizer* tokenizer) {
  const std::filesystem::path config_path = directory / "tokenizer_config.json";
  const std::filesystem::path template_path = directory / "chat_template.jinja";
  const Json config = read_config(config_path);
  const Json tokens = special_tokens(config, config_path.string());
  if (std::filesystem::exists(template_path)) {
    return with_context(template_path.string(), [&] {
      return ChatTemplate(read_text_file(template_path, jinja::kSourceBytes),
                          tokens);
    });
  }
  const std::optional<std::string> source =
      configured_template(config, config_path.string());
  if (!source && !std::filesystem::exists(directory / "tokenizer.json") &&
      std::filesystem::exists(directory / "tokenizer.model")) {
    std::optional<Tokenizer> own;
    if (tokenizer == nullptr) {
      tokenizer = &own.emplace(load_tokenizer(directory));
    }
    const auto chat = llama_chat(*tokenizer);
    if (chat) {
      ChatTemplate built_in(chat->source, tokens);
      built_in.stop_tokens_.assign(chat->stop_tokens.begin(),
                                   chat->stop_tokens.end());
      for (const std::int32_t id : tokenizer->special_ids()) {
        built_in.guarded_.emplace_back(tokenizer->id_to_token(id).value());
      }
      return built_in;
    }
  }
  if (!source) {
    fail_with_hint(ErrorCode::kNotFound,
                   "use generate with a prompt of your own",
                   "{}: found no chat template, expected chat_template.jinja "
                   "or chat_template in tokenizer_config.json",
                   directory.string());
  }
  return with_context(config_path.string() + ": chat_template",
                      [&] { return ChatTemplate(*source, tokens); });
}

ChatTemplate::ChatTemplate(std::string_view source, const Json& special_tokens)
    : program_(std::make_unique<jinja::Program>(jinja::parse(source))),
      special_tokens_(std::make_unique<Json>(special_tokens)) {}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const Json& messages,
                                 bool add_generation_prompt,
                                 const Json& variables) const {
  // What the reference environment always defines.
  jinja::Dict all = {
      {"messages", jinja::Value::from_json(messages)},
      {"tools", jinja::Value::none()},
      {"documents", jinja::Value::none()},
      {"add_generation_prompt", jinja::Value::boolean(add_generation_prompt)}};
  append(all, *special_tokens_, "special tokens");
  append(all, variables, "template variables");
  return with_context("chat template",
                      [&] { return jinja::evaluate(*program_, all); });
}

std::string ChatTemplate::render(const std::vector<Message>& messages,
                                 bool add_generation_prompt) const {
  Json array = Json::array();
  for (const Message& message : messages) {
    array.push_back({{"role", message.role},
                     {"content", guarded(message.content, guarded_)}});
  }
  return render(array, add_generation_prompt, Json::object());
}

}  // namespace nibble::text
