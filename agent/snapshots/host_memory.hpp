#pragma once
// How much memory this process may still take.
#include <cstdint>
#include <string>

namespace gradvane::agent {

/// Bytes, by the kernel's own estimate and the limit of the process's control group (version 2); -1:
/// not known here.
[[nodiscard]] std::int64_t available_memory(const std::string& root = "/");

/// Why `needed` more bytes are not taken, one sentence; empty if they may be.
[[nodiscard]] std::string memory_refusal(std::int64_t needed, const std::string& root = "/");

}  // namespace gradvane::agent
