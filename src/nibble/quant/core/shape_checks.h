#pragma once

#include <initializer_list>
#include <string_view>

#include "nibble/quant/core/number_spec.h"

namespace nibble::quant {

// Checks that schemes share; each throws kUnsupported with what was found,
// what is expected and what to do.

// The grain is one of `allowed`, which `words` lists for people.
void check_grain(const NumberSpec& spec,
                 std::initializer_list<Grain> allowed,
                 std::string_view words);

// Scales are F32, F16 or BF16.
void check_scale_dtype(const NumberSpec& spec);

// The group or the block's columns divide the columns; else the hint names the
// largest of the usual groups that does. Rows and columns are positive.
void check_divides(const NumberSpec& spec,
                   std::int64_t rows,
                   std::int64_t columns);

}  // namespace nibble::quant
