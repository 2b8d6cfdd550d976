// The language: expected texts are those of Jinja 3.1 with trim_blocks and
// lstrip_blocks on.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/text/jinja/evaluate.h"
#include "nibble/text/jinja/limits.h"
#include "nibble/text/jinja/text_tools.h"

namespace nibble::text::jinja {
namespace {

Dict variables() {
  const auto json = nlohmann::ordered_json::parse(R"({
    "n": 3, "x": 1.5, "s": "Text", "e": "", "yes": true, "nothing": null,
    "list": ["a", "b", "c"], "empty": [], "d": {"k": "v", "z": 1, "a": [2]},
    "messages": [{"role": "system", "content": "S"},
                 {"role": "user", "content": "U"}]})");
  Dict all;
  for (const auto& [name, value] : json.items()) {
    all.emplace_back(name, Value::from_json(value));
  }
  return all;
}

std::string render(std::string_view source) {
  return evaluate(parse(source), variables());
}

struct Case {
  const char* source;
  const char* expected;
};

void PrintTo(const Case& item, std::ostream* out) {
  *out << item.source;
}

class Rendered : public testing::TestWithParam<Case> {};

TEST_P(Rendered, AsJinjaDoes) {
  EXPECT_EQ(render(GetParam().source), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    WhiteSpace,
    Rendered,
    testing::Values(Case{"a\n", "a"},
                    Case{"a\n\n", "a\n"},
                    Case{"a\r\nb\rc", "a\nb\nc"},
                    Case{"{% if yes %}\nb\n{% endif %}\nc", "b\nc"},
                    Case{"a\n  {% if yes %}\n  b\n\t{% endif %}\n  c",
                         "a\n  b\n  c"},
                    Case{"a {% if yes %} b {% endif %} c", "a  b  c"},
                    Case{"  {% set q = 1 %}\nx", "x"},
                    Case{"a\n {%+ if yes %}b{% endif +%}\nc", "a\n b\nc"},
                    Case{"a \n {%- if yes -%} \n b {%- endif -%} \n c", "abc"},
                    Case{"a \n {{- n -}} \n b", "a3b"},
                    Case{"  {{ n }}\n  x", "  3\n  x"},
                    Case{"a\n  {# c #}\nb", "a\nb"},
                    Case{"a {#- c -#} b", "ab"},
                    Case{"{# {{ n }} {% x %} #}y", "y"},
                    Case{"{{ '}}' }}{{ \"%}\" }}", "}}%}"},
                    Case{"{{ {'a': {'b': 1}}['a']['b'] }}", "1"},
                    Case{"{ n } % } { {", "{ n } % } { {"}));

INSTANTIATE_TEST_SUITE_P(
    Values,
    Rendered,
    testing::Values(
        Case{"{{ n }} {{ x }} {{ s }} {{ yes }} {{ nothing }}",
             "3 1.5 Text True None"},
        Case{"{{ missing }}|{{ d.missing }}|{{ s.missing }}", "||"},
        Case{"{{ 2.0 }} {{ 10000000000000000.0 }} {{ 0.00001 }}",
             "2.0 1e+16 1e-05"},
        Case{"{{ 'a' 'b' \"c\" }}", "abc"},
        Case{R"({{ 'a\n\t\\\'\x41\u00e9\d' }})", "a\n\t\\'A\u00E9\\d"},
        Case{"{{ list[0] }}{{ list[-1] }}{{ list[9] }}", "ac"},
        Case{"{{ d['k'] }}{{ d.z }}{{ d.a[0] }}", "v12"},
        Case{"{{ s[0] }}{{ s[-1] }}", "Tt"},
        Case{"{{ s[1:] }} {{ s[:-1] }} {{ s[::-1] }} {{ s[1:3] }}",
             "ext Tex txeT ex"},
        Case{"{{ list[1:] | join('-') }} {{ list[::-1] | join }} "
             "{{ list[:99:2] | join }}",
             "b-c cba ac"},
        Case{"{{ nothing['x'] is undefined }} {{ n.y is defined }}",
             "True False"},
        Case{"{{ (1, 2) | length }} {{ () | length }} {{ [1, 2,] | last }}",
             "2 0 2"}));

INSTANTIATE_TEST_SUITE_P(
    Operators,
    Rendered,
    testing::Values(
        Case{"{{ 1 + 2 * 3 - 4 }}", "3"},
        Case{"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }}",
             "3 -4 2 -2"},
        Case{"{{ 7 / 2 }} {{ 4 / 2 }} {{ x * 2 }}", "3.5 2.0 3.0"},
        Case{"{{ 'a' + 'b' ~ 1 + 'c' }}", "ab1c"},
        Case{"{{ (list + ['d']) | join }}", "abcd"},
        Case{"{{ 1 == 1.0 }} {{ 1 == true }} {{ '1' == 1 }} {{ none == e }}",
             "True True False False"},
        Case{"{{ 1 < 2 <= 2 != 3 }} {{ 'a' < 'b' }} {{ 2 > 3 }}",
             "True True False"},
        Case{"{{ 'a' in list }} {{ 'ex' in s }} {{ 'k' in d }} "
             "{{ 'q' not in d }} {{ 1 in missing }}",
             "True True True True False"},
        Case{"{{ [1, [2]] == [1, [2]] }} {{ (1,) == [1] }} "
             "{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}",
             "True False True"},
        Case{"{{ e or 'b' }} {{ n and 's' }} {{ not e }} {{ not n == 3 }}",
             "b s True False"},
        Case{"{{ 'a' if n > 2 else 'b' }} {{ 'a' if n > 5 }}|", "a |"},
        Case{"{{ 1 if e else 2 if e else 3 }}", "3"},
        Case{"{{ -n }} {{ - 2 | string }} {{ missing == other }}",
             "-3 -2 True"}));

INSTANTIATE_TEST_SUITE_P(
    Statements,
    Rendered,
    testing::Values(
        Case{"{% if e %}a{% elif n == 3 %}b{% else %}c{% endif %}", "b"},
        Case{"{% if e %}a{% elif e %}b{% else %}c{% endif %}", "c"},
        Case{"{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ i }}"
             "{{ ',' if not loop.last }}{% endfor %}",
             "10a,21b,32c"},
        Case{"{% for i in list if i != 'a' %}{{ loop.first }}{{ i }}"
             "{{ loop.length }}{{ loop.revindex }} {% endfor %}",
             "Trueb22 Falsec21 "},
        Case{"{% for i in empty %}x{% else %}none{% endfor %}", "none"},
        Case{"{% for i in missing %}x{% endfor %}-", "-"},
        Case{"{% for k in d %}{{ k }}{% endfor %}", "kza"},
        Case{"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}"
             "{% endfor %}",
             "a1b2"},
        Case{"{% for c in 'h\u00E9' %}{{ c }}.{% endfor %}", "h.\u00E9."},
        Case{"{% for m in messages %}{{ loop.previtem.role if loop.previtem "
             "is defined }}>{{ m['role'] }} {% endfor %}",
             ">system system>user "},
        Case{"{% for i in [1, 2] %}{% for j in [3, 4] %}{{ loop.index }}"
             "{% endfor %}{{ loop.index }}{% endfor %}",
             "121122"},
        Case{"{% set a = 1 %}{% for i in list %}{% set a = a + 1 %}{{ a }}"
             "{% endfor %}{{ a }}",
             "2221"},
        Case{"{% set a = 1 %}{% if yes %}{% set a = 2 %}{% endif %}{{ a }}",
             "2"},
        Case{"{% set a, b = 'xy' %}{{ b }}{{ a }}", "yx"},
        Case{"{% set m = messages[1:] %}{{ m[0].content }}", "U"}));

INSTANTIATE_TEST_SUITE_P(
    FiltersAndTests,
    Rendered,
    testing::Values(
        Case{"{{ '  a\\x1f\\n' | trim }}|{{ 'xay' | trim('xy') }}", "a|a"},
        Case{"{{ s | upper }} {{ s | lower }} {{ '\u00E9' | upper }}",
             "TEXT text \u00C9"},
        Case{"{{ list | length }} {{ 'h\u00E9' | count }} {{ d | length }}",
             "3 2 3"},
        Case{"{{ missing | default('x') }} {{ e | d('y', true) }} "
             "{{ e | default('z') }}|{{ none | default('q', boolean=true) }}",
             "x y |q"},
        Case{"{{ list | first }}{{ list | last }}{{ empty | first }}", "ac"},
        Case{"{{ [1, 'b'] | join(', ') }}", "1, b"},
        Case{"{{ d | tojson }}", R"({"k": "v", "z": 1, "a": [2]})"},
        Case{"{{ ['\u00E9<&\\'\"\\n\\x01', none, true, 1.0, {}] | tojson }}",
             "[\"\u00E9<&'\\\"\\n\\u0001\", null, true, 1.0, {}]"},
        Case{"{{ '\u00E9' | tojson(ensure_ascii=false) }}", "\"\u00E9\""},
        Case{"{{ {'a': [1], 'b': []} | tojson(indent=2) }}",
             "{\n  \"a\": [\n    1\n  ],\n  \"b\": []\n}"},
        Case{"{{ 'a-b' | replace('-', '+') }} {{ 'ab' | list | last }}",
             "a+b b"},
        Case{"{{ s is string }} {{ s is not string }} {{ n is number }} "
             "{{ yes is boolean }} {{ d is mapping }} {{ list is sequence }}",
             "True False True True True True"},
        Case{"{{ nothing is none }} {{ q is none }} {{ q is defined }} "
             "{{ yes is true }} {{ n is integer }} {{ list is iterable }}",
             "True False False True True True"},
        Case{"{{ ' a '.strip() }}|{{ 'xxa'.lstrip('x') }}|"
             "{{ 'a\\n'.rstrip('\\n') }}",
             "a|a|a"},
        Case{"{{ 'a,b,c'.split(',')[-1] }} {{ ' a  b '.split() | join('.') }} "
             "{{ 'a b c '.split(none, 1) | join('.') }} "
             "{{ 'a,b,c'.split(',', 1) | join('.') }}",
             "c a.b a.b c  a.b,c"},
        Case{"{{ s.startswith('Te') }} {{ s.endswith(('x', 'xt')) }} "
             "{{ s.replace('T', 'n').upper() }}",
             "True True NEXT"},
        Case{"{{ d.get('k') }} {{ d.get('q') }} {{ d.get('q', 5) }} "
             "{{ d.keys() | join }} {{ d['a'].__x if false }}",
             "v None 5 kza "}));

struct Refusal {
  const char* source;
  ErrorCode code;
  const char* part;
};

void PrintTo(const Refusal& item, std::ostream* out) {
  *out << item.source;
}

class Refused : public testing::TestWithParam<Refusal> {};

TEST_P(Refused, WithItsLine) {
  expect_error(GetParam().code, GetParam().part, [] {
    static_cast<void>(render(GetParam().source));
  });
}

constexpr ErrorCode kCorrupt = ErrorCode::kCorruptData;
constexpr ErrorCode kUnknown = ErrorCode::kUnsupported;
constexpr ErrorCode kRaised = ErrorCode::kInvalidArgument;

INSTANTIATE_TEST_SUITE_P(
    Unknown,
    Refused,
    testing::Values(
        Refusal{"\n{% macro m() %}", kUnknown, "line 2: tag 'macro'"},
        Refusal{"{% break %}", kUnknown, "tag 'break'"},
        Refusal{"{% set ns.x = 1 %}", kUnknown, "attribute of 'ns'"},
        Refusal{
            "{% set x %}a{% endset %}", kUnknown, "block assignment of 'x'"},
        Refusal{"{% for i in n recursive %}", kUnknown, "'recursive'"},
        Refusal{
            "\n\n{{ n | wordwrap }}", kUnknown, "line 3: filter 'wordwrap'"},
        Refusal{"{{ n is odd }}", kUnknown, "test 'odd'"},
        Refusal{"{{ range(3) }}", kUnknown, "line 1: function 'range'"},
        Refusal{"{{ strftime_now is defined }}", kUnknown, "'strftime_now'"},
        Refusal{"{{ s.title() }}", kUnknown, "line 1: method 'title'"},
        Refusal{"{{ s.title }}", kUnknown, "method 'title' without a call"},
        Refusal{"{{ d.items }}", kUnknown, "method 'items' without a call"},
        Refusal{"{{ d.update({}) }}", kUnknown, "method 'update'"},
        Refusal{"{{ list.append(1) }}", kUnknown, "method 'append'"},
        Refusal{"{% for i in list %}{{ loop.changed }}{% endfor %}",
                kUnknown,
                "loop.changed"},
        Refusal{"{{ 2 ** 3 }}", kUnknown, "operator '**'"},
        Refusal{"{{ +1 }}", kUnknown, "unary operator '+'"},
        Refusal{"{{ 'a' * 3 }}", kUnknown, "found string and integer"},
        Refusal{"{{ list }}", kUnknown, "found a list"},
        Refusal{"{{ d }}", kUnknown, "found a mapping"},
        Refusal{"{{ (1, 2) }}", kUnknown, "found a list"},
        Refusal{
            "{{ [1] | join(attribute='x') }}", kUnknown, "arguments of 'join'"},
        Refusal{"{{ d | tojson(2) }}", kUnknown, "arguments of 'tojson'"},
        Refusal{
            "{{ d | tojson(ensure_ascii=true) }}", kUnknown, "ensure_ascii"},
        Refusal{"{{ 'a' | trim('b', 'c') }}", kUnknown, "arguments of 'trim'"},
        Refusal{"{{ '\u00DF' | upper }}", kUnknown, "U+00DF"},
        Refusal{"{{ 0x10 }}", kUnknown, "plain decimal digits"},
        Refusal{"{{ '\\N{DASH}' }}", kUnknown, "named escape"},
        Refusal{"{{ f(*list) }}", kUnknown, "argument '*'"},
        Refusal{"{{ {1: 2} }}", kUnknown, "a key that is no text"},
        Refusal{"{{ 9223372036854775807 + 1 }}", kUnknown, "64 bits"},
        Refusal{"{{ 99999999999999999999 }}", kUnknown, "64 bits"},
        Refusal{"{{ n is string.x }}", kUnknown, "behind a filter or test"}));

INSTANTIATE_TEST_SUITE_P(
    Broken,
    Refused,
    testing::Values(
        Refusal{"{{ n", kCorrupt, "line 1: found a tag without its end"},
        Refusal{"\n{# n", kCorrupt, "line 2: found a comment without #}"},
        Refusal{"{{ 'a }}", kCorrupt, "found a string without its end"},
        Refusal{"{{ }}", kCorrupt, "found }}, expected an expression"},
        Refusal{"{{ n n }}", kCorrupt, "found 'n', expected }}"},
        Refusal{"{{ n ] }}", kCorrupt, "without its opening bracket"},
        Refusal{"{{ n ? }}", kCorrupt, "found '?'"},
        Refusal{"{{ list[] }}", kCorrupt, "expected an index"},
        Refusal{"{{ list[1 2] }}", kCorrupt, "found '2', expected ]"},
        Refusal{"{{ list[::1:] }}", kCorrupt, "expected ]"},
        Refusal{"{{ '\\xZZ' }}", kCorrupt, "broken \\ escape"},
        Refusal{"{% if n %}a", kCorrupt, "expected {% endif %}"},
        Refusal{"{% endfor %}", kCorrupt, "without the tag it belongs to"},
        Refusal{"{% for in list %}{% endfor %}", kCorrupt, "expected in"},
        Refusal{"{% if %}{% endif %}", kCorrupt, "expected an expression"},
        Refusal{"{{ f(a=1, 2) }}", kCorrupt, "expected a named argument"},
        Refusal{"{% %}", kCorrupt, "expected a name"},
        Refusal{"\xFF", kCorrupt, "no valid UTF-8"}));

INSTANTIATE_TEST_SUITE_P(
    Raised,
    Refused,
    testing::Values(
        Refusal{"\n{{ missing.x }}", kRaised, "line 2: 'missing' is undefined"},
        Refusal{"{{ missing['x'] }}", kRaised, "'missing' is undefined"},
        Refusal{"{{ d.q.r }}", kRaised, "'q' is undefined"},
        Refusal{"{{ missing + 'a' }}", kRaised, "'missing' is undefined"},
        Refusal{"{{ s.nothing() }}", kRaised, "'nothing' is undefined"},
        Refusal{"{{ n() }}", kRaised, "'n' is not callable"},
        Refusal{"{{ 'a' + 1 }}", kRaised, "found string and integer"},
        Refusal{"{{ 1 < 'a' }}", kRaised, "expected two numbers or two texts"},
        Refusal{"{{ 1 in 'a' }}", kRaised, "expected a text"},
        Refusal{"{{ 1 in n }}", kRaised, "items: found integer"},
        Refusal{"{{ 1 / 0 }}", kRaised, "division by zero"},
        Refusal{"{{ 1 % 0 }}", kRaised, "division by zero"},
        Refusal{"{{ -s }}", kRaised, "expected a number"},
        Refusal{
            "{% for i in nothing %}{% endfor %}", kRaised, "items: found none"},
        Refusal{"{% for a, b in [[1]] %}{% endfor %}",
                kRaised,
                "found 1 values for 2 names"},
        Refusal{"{{ n | length }}", kRaised, "length: found integer"},
        Refusal{"{{ missing | tojson }}", kRaised, "tojson: found undefined"},
        Refusal{"{{ list['a':] }}", kRaised, "expected integers"},
        Refusal{"{{ list[::0] }}", kRaised, "a step of zero"},
        Refusal{"{{ s.startswith(1) }}", kRaised, "startswith"},
        Refusal{"{{ s.split('') }}", kRaised, "found an empty text"},
        Refusal{"{{ raise_exception('no ' + s) }}",
                kRaised,
                "the template refuses the conversation: no Text"}));

std::string repeated(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    out += text;
  }
  return out;
}

TEST(Limits, NestingDoesNotUseUpTheStack) {
  constexpr std::size_t kMany = 100'000;
  for (const std::string& source :
       {"{{ " + repeated("(", kMany) + repeated(")", kMany) + " }}",
        "{{ " + repeated("[", kMany) + repeated("]", kMany) + " }}",
        "{{ " + repeated("not ", kMany) + "1 }}",
        "{{ " + repeated("- ", kMany) + "1 }}",
        "{{ 1" + repeated("+1", kMany) + " }}",
        "{{ 1" + repeated("|d", kMany) + " }}",
        "{{ n" + repeated(".a", kMany) + " }}",
        "{{ " + repeated("1 if 1 else ", kMany) + "1 }}",
        repeated("{% if n %}", kMany)}) {
    SCOPED_TRACE(source.substr(0, 20));
    expect_error(ErrorCode::kUnsupported, "200", [&] {
      static_cast<void>(render(source));
    });
  }
}

TEST(Limits, LoopsWithoutEndEnd) {
  std::string source;
  std::string end;
  for (int i = 0; i < 12; ++i) {
    source += "{% for i in 'abcdefghijklmnopqrstuvwxyz' %}";
    end += "{% endfor %}";
  }
  expect_error(ErrorCode::kUnsupported, "steps", [&] {
    static_cast<void>(render(source + end));
  });
}

TEST(Limits, TextsDoNotDoubleForever) {
  std::string source = "{% set a = 'aaaaaaaa' %}";
  for (int i = 0; i < 60; ++i) {
    source += "{% set a = a ~ a %}";
  }
  expect_error(ErrorCode::kUnsupported, "a text of more than", [&] {
    static_cast<void>(render(source));
  });
  source = "{% set a = [1] %}";
  for (int i = 0; i < 60; ++i) {
    source += "{% set a = a + a %}";
  }
  expect_error(ErrorCode::kUnsupported, "a list of more than", [&] {
    static_cast<void>(render(source));
  });
}

TEST(Limits, LargeSourcesAreRefused) {
  expect_error(ErrorCode::kUnsupported, "found 1048577 bytes", [] {
    static_cast<void>(parse(std::string(kSourceBytes + 1, 'a')));
  });
}

TEST(TextTools, SplitAsPythonDoes) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(split("a,b,,", ",", -1), (Strings{"a", "b", "", ""}));
  EXPECT_EQ(split("", ",", -1), Strings{""});
  EXPECT_EQ(split("", "", -1), Strings{});
  EXPECT_EQ(split("  a  b ", "", 0), Strings{"a  b "});
  EXPECT_EQ(split("  a  b  c ", "", 1), (Strings{"a", "b  c "}));
}

TEST(TextTools, StripGoesByCharacters) {
  EXPECT_EQ(strip("\u00E9\u3000", Side::kBoth), "\u00E9");
  EXPECT_EQ(strip("\u00E9a\u00E8", Side::kBoth, "\u00E8\u00E9"), "a");
  EXPECT_EQ(strip("xax", Side::kLeft, "x"), "ax");
  EXPECT_EQ(strip("xax", Side::kRight, "x"), "xa");
}

}  // namespace
}  // namespace nibble::text::jinja
