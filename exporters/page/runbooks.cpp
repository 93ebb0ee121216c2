#include "exporters/page/runbooks.hpp"

#include "exporters/page/runbook_data.hpp"

namespace gradvane::exporters {

std::map<std::string, HttpHandler> runbook_routes() {
  std::map<std::string, HttpHandler> routes;
  std::string list;
  for (const RunbookData& runbook : runbook_data()) {
    const auto answer = [&runbook](const HttpRequest&) {
      return HttpResponse{.packed = runbook.packed,
                          .etag = '"' + std::string(runbook.hash.substr(0, 32)) + '"',
                          .cache_control = "no-cache"};
    };
    const std::string path = "/runbooks/" + std::string(runbook.name);
    routes[path] = answer;
    routes[path + ".md"] = answer;  // as links from one runbook to another have it
    list.append(path).append("\n");
  }
  routes["/runbooks/"] = [list](const HttpRequest&) { return HttpResponse{.body = list}; };
  return routes;
}

}  // namespace gradvane::exporters
