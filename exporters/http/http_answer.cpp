#include "exporters/http/http_answer.hpp"

#include <utility>

#include "exporters/http/gzip.hpp"

namespace gradvane::exporters {
namespace {

namespace http = boost::beast::http;

std::string as_text(boost::beast::string_view view) { return {view.data(), view.size()}; }

}  // namespace

std::string path_of(const http::request_header<>& request) {
  const std::string target = as_text(request.target());
  return target.substr(0, target.find('?'));
}

HttpResponse answer_of(const http::request_header<>& request,
                       const std::map<std::string, HttpHandler>& routes,
                       const HttpHandler& otherwise) {
  const std::string target = as_text(request.target());
  const auto question = target.find('?');
  const std::string path = path_of(request);
  const auto route = routes.find(path);
  const HttpHandler& handler = route == routes.end() ? otherwise : route->second;
  if (!handler) return {.status = 404, .body = "not found\n"};
  try {
    const std::string known = as_text(request[http::field::if_none_match]);
    HttpResponse response =
        handler({.path = path,
                 .query = question == std::string::npos ? "" : target.substr(question + 1),
                 .accept = as_text(request[http::field::accept]),
                 .last_event_id = as_text(request["Last-Event-ID"])});
    if (response.etag.empty() || known.find(response.etag) == std::string::npos) return response;
    response.status = 304;
    response.packed = {};
    response.body.clear();
    return response;
  } catch (...) {
    return {.status = 500, .body = "this page could not be made\n"};
  }
}

bool pack(HttpResponse& response, bool may_be_packed, std::size_t from_bytes) {
  if (!response.packed.empty()) {
    if (may_be_packed) {
      response.body = response.packed;
    } else {
      response.body = gunzip(response.packed).value_or("");
    }
    return may_be_packed;
  }
  if (!may_be_packed || response.body.size() < from_bytes) return false;
  auto packed = gzip(response.body);
  if (packed) response.body = std::move(*packed);
  return packed.has_value();
}

}  // namespace gradvane::exporters
