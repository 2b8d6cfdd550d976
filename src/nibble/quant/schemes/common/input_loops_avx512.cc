#include "nibble/quant/schemes/common/input_loops_body.h"

namespace nibble::quant {

const InputLoops kInputLoopsAvx512 = kLoops;

}  // namespace nibble::quant
