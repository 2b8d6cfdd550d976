#include "nibble/quant/schemes/common/input_loops_body.h"

namespace nibble::quant {

const InputLoops kInputLoopsPortable = kLoops;

}  // namespace nibble::quant
