#pragma once

#include "nibble/load/native/native_form.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {

// Fills file_kind, shard_names and shard_prefixes of a plan that writes a
// native layout: Meta's consolidated.NN.pth with int4_scales_R.pt or
// fp8_scales_R.pt, or gpt-fast's model.pth, model_int8.pth or
// model_int4.gG.pth. kUnsupported for layers that one such set of files cannot
// hold together.
void name_native_files(const load::NativeForm& form, Plan& plan);

}  // namespace nibble::quant
