// A build without CUDA.
#include "collectors/tensors/pinned_memory.hpp"

namespace gradvane::collectors {

std::string pin(void*, std::size_t) { return "this build is without CUDA"; }
void unpin(void*) noexcept {}

}  // namespace gradvane::collectors
