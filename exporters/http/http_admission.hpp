#pragma once
// Which requests are answered at all. Private to the HTTP server.
#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>
#include <string_view>

#include "exporters/http/host_rule.hpp"
#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

/// What a request gets that is not let through, and absent for one that is: 400 where it does not say once
/// which host it wants (RFC 9112, 3.2), 421 for a host that `hosts` does not know, 403 where a browser says
/// that another site's page asks, unless a person goes to that address.
/// @param hosts  absent: any host
[[nodiscard]] std::optional<HttpResponse> refusal_of(
    const boost::beast::http::request_header<>& request, std::string_view path,
    const std::optional<HostRule>& hosts);

}  // namespace gradvane::exporters
