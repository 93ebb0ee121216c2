#pragma once
// Numbers as the page's script writes them (dashboards/page/src/words/number_text.ts): who switches scripts
// off reads the same text. dashboards/page/test/same_text.json has the cases that both are tested with.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradvane::exporters {

/// Four digits: 0.3125, 12,346, 1.234e−5. "NaN" or "+Inf" if it is one of those, an en dash if it was not
/// measured.
[[nodiscard]] std::string page_number(const std::optional<double>& value);
/// 1 step, 12,345 steps
[[nodiscard]] std::string page_plural(std::int64_t count, std::string_view one);
/// 5 s, 4 min 10 s, 3 h 5 min, 2 d 1 h
[[nodiscard]] std::string page_age(std::int64_t seconds);

}  // namespace gradvane::exporters
