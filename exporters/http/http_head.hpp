#pragma once
// The text in front of an answer's body. Private to the HTTP server.
#include <cstddef>
#include <string>

#include "exporters/http/access/web_access.hpp"
#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

struct HttpHead {
  std::size_t length = 0;  ///< bytes of the body; not said for one that goes on
  bool is_packed = false;  ///< the body is gzip's
  bool keep_alive = false;
  const WebAccess* web = nullptr;  ///< has headers of its own; null: none
};

/// Status line and headers, to the empty line.
[[nodiscard]] std::string head_of(const HttpResponse& response, const HttpHead& head);

}  // namespace gradvane::exporters
