#include "kernels/cpu_part.hpp"
namespace gradvane::kernels {
const ReadPartTable kAvx512ReadPart = {};
}
