#pragma once
// Which requests show that they may read, where the endpoint asks for a token. Private to the HTTP server.
#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

struct AccessToken {
  std::string text = {};    ///< empty: everyone may read
  std::string cookie = {};  ///< name of the cookie in which a browser keeps it
  bool is_secure = false;   ///< the cookie goes over TLS only
};

/// Absent for a request that is let through: with the token in `Authorization: Bearer` or in the cookie. A browser that a person sends with ?token= gets
/// the cookie and is sent on (303), so that the token does not stay in its address line. All others get 401. How long it takes
/// does not depend on what of the token is right.
/// @param target  path and query, as sent
[[nodiscard]] std::optional<HttpResponse> token_refusal(
    const boost::beast::http::request_header<>& request, std::string_view target,
    const AccessToken& token);

}  // namespace gradvane::exporters
