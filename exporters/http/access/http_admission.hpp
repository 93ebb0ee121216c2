#pragma once
// Which requests are answered at all. Private to the HTTP server.
#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "exporters/http/access/access_token.hpp"
#include "exporters/http/access/host_rule.hpp"
#include "exporters/http/access/web_access.hpp"
#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

/// What a connection is asked for.
struct AdmissionRules {
  const std::optional<HostRule>& hosts;  ///< absent: any host
  const AccessToken& token;
  WebAccess* web = nullptr;  ///< null: no web config
  std::string peer = {};     ///< the address that asks
  bool is_first = true;      ///< this request has not been judged before
};

/// What a request gets that is not let through, and absent for one that is.
using Admission = std::optional<HttpResponse>;

/// Judges by these, in this order:
///   - 400 if a request does not say once which host it wants (RFC 9112, 3.2), 421 for a host that `hosts` does not know,
///     403 if a browser says that another site's page asks, unless a person goes to that address
///   - 429 beyond the limit of the web config
///   - 401 without the token (token_refusal()) or a user's name and password; one of them will do
/// /-/healthy and /-/ready need neither of the last three: orchestrators ask for them.
/// Absent: its password is not checked yet, and the request has to be judged again.
[[nodiscard]] std::optional<Admission> admission_of(
    const boost::beast::http::request_header<>& request, std::string_view path,
    const AdmissionRules& rules);

}  // namespace gradvane::exporters
