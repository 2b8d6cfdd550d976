#include "nibble/text/chat/llama_chat.h"

#include <string>

namespace nibble::text {
namespace {

// A message is its role, two line ends, its text and an end, all Llama 3 and
// 4. Texts are trimmed: a line end at their start would merge with the two.
constexpr std::string_view kLlama3 = R"({{- '<|begin_of_text|>' -}}
{%- for message in messages -%}
{%- if message.role not in ['system', 'user', 'assistant', 'tool'] -%}
{{- raise_exception('found the role ' ~ message.role ~
    ', expected system, user, assistant or tool') -}}
{%- endif -%}
{{- '<|start_header_id|>' -}}
{{- 'ipython' if message.role == 'tool' else message.role -}}
{{- '<|end_header_id|>\n\n' ~ message.content | trim ~ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
)";

// A tool's result ends the message but not the turn.
constexpr std::string_view kLlama4 = R"({{- '<|begin_of_text|>' -}}
{%- for message in messages -%}
{%- if message.role not in ['system', 'user', 'assistant', 'tool'] -%}
{{- raise_exception('found the role ' ~ message.role ~
    ', expected system, user, assistant or tool') -}}
{%- endif -%}
{{- '<|header_start|>' -}}
{{- 'ipython' if message.role == 'tool' else message.role -}}
{{- '<|header_end|>\n\n' ~ message.content | trim -}}
{{- '<|eom|>' if message.role == 'tool' else '<|eot|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|header_start|>assistant<|header_end|>\n\n' -}}
{%- endif -%}
)";

// Pairs of user and assistant, each with its own begin and end; the system
// message stands inside the first user's text.
constexpr std::string_view kLlama2 = R"({%- set turns = messages -%}
{%- set preface = '' -%}
{%- if messages and messages[0].role == 'system' -%}
{%- set turns = messages[1:] -%}
{%- set preface =
    '<<SYS>>\n' ~ messages[0].content | trim ~ '\n<</SYS>>\n\n' -%}
{%- endif -%}
{%- if preface and not turns -%}
{{- raise_exception('found a system message alone, expected one of the user' ~
    ' behind it') -}}
{%- endif -%}
{%- for message in turns -%}
{%- set expected = 'user' if loop.index0 % 2 == 0 else 'assistant' -%}
{%- if message.role != expected -%}
{{- raise_exception('found the role ' ~ message.role ~ ', expected ' ~
    expected ~ ': user and assistant take turns') -}}
{%- endif -%}
{%- if expected == 'user' -%}
{{- '<s>[INST] ' -}}
{{- preface if loop.first else '' -}}
{{- message.content | trim ~ ' [/INST]' -}}
{%- else -%}
{{- ' ' ~ message.content | trim ~ ' </s>' -}}
{%- endif -%}
{%- endfor -%}
)";

bool has_special(const Tokenizer& tokenizer, std::string_view token) {
  const auto id = tokenizer.token_to_id(token);
  return id && tokenizer.is_special(*id);
}

}  // namespace

std::optional<LlamaChat> llama_chat(const Tokenizer& tokenizer) {
  if (has_special(tokenizer, "<|header_start|>")) {
    return LlamaChat{kLlama4, {"<|eot|>", "<|eom|>", "<|end_of_text|>"}};
  }
  if (has_special(tokenizer, "<|start_header_id|>")) {
    return LlamaChat{kLlama3, {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}};
  }
  if (has_special(tokenizer, "<s>") && has_special(tokenizer, "</s>")) {
    return LlamaChat{kLlama2, {"</s>"}};
  }
  return std::nullopt;
}

}  // namespace nibble::text
