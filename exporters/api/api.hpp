#pragma once
// The JSON API. Each answer has a schema in docs/api/; a query value that is not allowed gets 400 and
// {"error": ...}, which says what is.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "exporters/board/status_board.hpp"
#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

/// The run now. ?optimizer=N: its numbers, not those of whichever stepped last.
/// @param scrapes  answers of /metrics so far; absent if no one counts them
[[nodiscard]] HttpResponse status_json(const StatusBoard& board, std::string_view query,
                                       std::optional<std::uint64_t> scrapes = std::nullopt);

/// The same without `groups`: of a large model they are nearly all of it, and a viewer is told once a
/// second.
[[nodiscard]] std::string status_event(const Status& status, std::int32_t optimizer);

/// Every parameter with its state and numbers. ?sort=KEY &order=asc|desc &limit=N &offset=N &search=TEXT
[[nodiscard]] HttpResponse params_json(const StatusBoard& board, std::string_view query);

/// Steps after ?since=RUN_STEP, oldest first, at most ?limit=N.
[[nodiscard]] HttpResponse steps_json(const StatusBoard& board, std::string_view query);

/// Host syncs and the places in the code that asked for them. ?limit=N &origin=ORIGIN choose places.
[[nodiscard]] HttpResponse syncs_json(const StatusBoard& board, std::string_view query);

}  // namespace gradvane::exporters
