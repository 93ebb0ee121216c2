#pragma once
// Memory of the host that a CUDA device copies to and from without a stop.
#include <cstddef>
#include <string>

namespace gradvane::collectors {

/// Registers it with CUDA at its exact size: torch's own allocator rounds up to a power of two. Any device may copy
/// then. Returns why that failed; empty if it did not. Any thread.
[[nodiscard]] std::string pin(void* memory, std::size_t size);
void unpin(void* memory) noexcept;

}  // namespace gradvane::collectors
