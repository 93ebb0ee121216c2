#pragma once
// From a request to the answer of its route. Private to the HTTP server.
#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <cstddef>
#include <map>
#include <string>

#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

/// Of what is asked for, without the query.
[[nodiscard]] std::string path_of(const boost::beast::http::request_header<>& request);

/// 404 where there is no route, 500 if it throws, and 304 for what the other side has already.
/// @param otherwise  for paths that are no route; empty: they get 404
[[nodiscard]] HttpResponse answer_of(const boost::beast::http::request_header<>& request,
                                     const std::map<std::string, HttpHandler>& routes,
                                     const HttpHandler& otherwise);

/// Packs the body, or unpacks one that is kept packed. True where it is gzip's then.
/// @param from_bytes  smaller bodies stay as they are
[[nodiscard]] bool pack(HttpResponse& response, bool may_be_packed, std::size_t from_bytes);

}  // namespace gradvane::exporters
