#pragma once
// GET over HTTP, in bounded time and memory, whatever the other side does.
#include <chrono>
#include <cstdint>
#include <string>

#include "exporters/client/http_connector.hpp"

namespace gradvane::exporters {

struct HttpFetched {
  int status = 0;          ///< 0: there was no answer
  std::string body = {};   ///< as long as the answer may be
  std::string error = {};  ///< why there is none, for a person
};

/// Without TLS. Waits until `deadline` at most, finding the host's addresses aside. Throws as HttpConnector::connect().
/// @param token  shown as `Authorization: Bearer`; empty: nothing is shown
/// @param limit  a longer body is an error
[[nodiscard]] HttpFetched http_get(HttpConnector& connector, const std::string& authority,
                                   const std::string& target, const std::string& token,
                                   std::uint64_t limit,
                                   std::chrono::steady_clock::time_point deadline);

}  // namespace gradvane::exporters
