#pragma once
// The JSON API. Each answer has a schema in docs/api/; a query value that is not allowed gets 400 and
// {"error": ...}, which says what is.
#include <string_view>

#include "exporters/http_message.hpp"
#include "exporters/status_board.hpp"

namespace gradvane::exporters {

/// The run now.
[[nodiscard]] HttpResponse status_json(const StatusBoard& board, std::string_view query);

/// Every parameter with its state and numbers. ?sort=KEY &order=asc|desc &limit=N &search=TEXT
[[nodiscard]] HttpResponse params_json(const StatusBoard& board, std::string_view query);

/// Steps after ?since=RUN_STEP, oldest first, at most ?limit=N.
[[nodiscard]] HttpResponse steps_json(const StatusBoard& board, std::string_view query);

/// Host syncs and the places in the code that asked for them. ?limit=N &origin=ORIGIN choose places.
[[nodiscard]] HttpResponse syncs_json(const StatusBoard& board, std::string_view query);

}  // namespace gradvane::exporters
