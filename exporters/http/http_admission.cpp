#include "exporters/http/http_admission.hpp"

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

}  // namespace

std::optional<HttpResponse> refusal_of(const Request& request, std::string_view path,
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

}  // namespace gradvane::exporters
