#pragma once
// Bytes that this process asks the C library for. Linking it replaces malloc and its kin.
#include <cstdint>

namespace gradvane::bench {

/// Since the process began; all threads.
[[nodiscard]] std::int64_t bytes_allocated() noexcept;

}  // namespace gradvane::bench
