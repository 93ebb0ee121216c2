#include "exporters/http/access/http_admission.hpp"

#include <string>

namespace gradvane::exporters {
namespace {

namespace http = boost::beast::http;
using Request = http::request_header<>;

std::string_view field_of(const Request& request, std::string_view name) {
  const auto value = request[name];
  return {value.data(), value.size()};
}

/// Browsers say on whose behalf they ask, to addresses of this machine and over TLS.
bool is_of_another_site(const Request& request) {
  const std::string_view site = field_of(request, "Sec-Fetch-Site");
  if (site != "cross-site" && site != "same-site") return false;
  return field_of(request, "Sec-Fetch-Mode") != "navigate" ||
         field_of(request, "Sec-Fetch-Dest") != "document";
}

constexpr std::string_view kBearer = "Bearer realm=\"gradvane\"";
constexpr std::string_view kBasic = "Basic realm=\"gradvane\", charset=\"UTF-8\"";

Admission host_refusal(const Request& request, std::string_view path,
                       const std::optional<HostRule>& hosts) {
  const auto count = request.count(http::field::host);
  if (count > 1 || (count == 0 && request.version() >= 11))
    return HttpResponse{.status = 400, .body = "a request names its host, once\n"};
  if (hosts && count == 1) {
    const auto host = request[http::field::host];
    if (!is_answered(*hosts, {host.data(), host.size()}, path))
      return HttpResponse{
          .status = 421,
          .body =
              "Gradvane does not answer to the host name of this request. Use an IP address or "
              "localhost, or add the name to the option allowed_hosts "
              "(GRADVANE_ALLOWED_HOSTS).\n"};
  }
  if (is_of_another_site(request))
    return HttpResponse{.status = 403, .body = "pages of other sites may not read this\n"};
  return std::nullopt;
}

/// Browsers ask a person for the name and the password.
HttpResponse password_refusal(bool has_token) {
  const std::string_view also = has_token ? ", or a token" : "";
  return {.status = 401,
          .body = "This endpoint asks for a user's name and password" + std::string(also) +
                  ". `gradvane top` on the machine of the run needs neither.\n",
          .challenge = std::string(kBasic)};
}

}  // namespace

std::optional<Admission> admission_of(const Request& request, std::string_view path,
                                      const AdmissionRules& rules) {
  if (auto refusal = host_refusal(request, path, rules.hosts)) return refusal;
  if (path == "/-/healthy" || path == "/-/ready") return Admission();
  if (rules.web != nullptr && rules.is_first && !rules.web->is_within_limit())
    return HttpResponse{.status = 429, .body = "there are more requests than rate_limit allows\n"};
  const auto target = request.target();
  const bool has_token = !rules.token.text.empty();
  Admission refusal = token_refusal(request, {target.data(), target.size()}, rules.token);
  const bool has_users = rules.web != nullptr && rules.web->has_users();
  if (!has_users) {
    if (refusal && refusal->status == 401) refusal->challenge = kBearer;
    return refusal;
  }
  if (has_token && (!refusal || refusal->status != 401)) return refusal;
  switch (rules.web->admits(rules.peer, field_of(request, "Authorization"))) {
    case WebAccess::Verdict::yes:
      return Admission();
    case WebAccess::Verdict::not_yet:
      return std::nullopt;
    case WebAccess::Verdict::no:
      break;
  }
  return password_refusal(has_token);
}

}  // namespace gradvane::exporters
