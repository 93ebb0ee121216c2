#pragma once
// The token that an endpoint asks for: what may be one, and the one that a run directory keeps.
#include <sys/types.h>

#include <string>
#include <string_view>

namespace gradvane::exporters {

/// As the option's value: the one in the run directory.
inline constexpr std::string_view kTokenOfDirectory = "auto";

/// 16 to 128 letters, digits, and - . _ ~, which a URL takes as they are.
[[nodiscard]] bool is_access_token(std::string_view text) noexcept;

/// What the file `token` in the run directory holds. It is made, for its owner only, if it is not there: 128
/// random bits in hexadecimal digits. All ranks that share the directory get the same. Empty: errno says why,
/// EINVAL if the file holds something else.
[[nodiscard]] std::string run_token(int directory, uid_t owner);

}  // namespace gradvane::exporters
