#pragma once
// Memory of this process, from the kernel's own account.
#include <cstdint>
#include <optional>

namespace gradvane::collectors {

/// Resident bytes of this process; absent where /proc cannot be read. Any thread; allocates nothing.
[[nodiscard]] std::optional<std::int64_t> resident_bytes() noexcept;

}  // namespace gradvane::collectors
