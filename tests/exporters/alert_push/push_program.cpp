// Pushes what it is told to, for tests with a real Alertmanager.
//   [ALERTMANAGER_HTTP_CONFIG=FILE] push_program URL RUN EVENT_SECONDS KEEP_SECONDS [LABEL=VALUE ...]
// Reads commands, one a line: `open CLASS ID`, `close CLASS ID`, `fail REASON`,
// `finish MILLISECONDS`. After each it prints "done"; after the last one how many pushes were
// taken, how many were not, and the latest error.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "exporters/alert_push/alert_push.hpp"
#include "exporters/web/configured_push.hpp"
#include "record/names.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gx = gradvane::exporters;
namespace gr = gradvane::record;

namespace {

double wall_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

gr::Incident incident_of(const std::string& kind, std::int64_t id) {
  static std::map<std::int64_t, double> opened;
  gr::Incident incident = gx::fakes::fake_incident(id, 5);
  incident.opened_at = opened.emplace(id, wall_now()).first->second;
  incident.evidence = "incident " + std::to_string(id);
  incident.kind = gr::named<gr::IncidentClass>(kind).value_or(incident.kind);
  return incident;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  gr::RunInfo run = gx::fakes::fake_run();
  run.run = argv[2];
  gx::AlertPushOptions options{.url = argv[1]};
  try {
    const char* config = std::getenv("ALERTMANAGER_HTTP_CONFIG");
    options.access = std::make_shared<gx::ConfiguredPush>(gx::parse_alert_url(options.url),
                                                          config ? config : "");
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  options.windows = {.event = std::chrono::seconds(std::atoi(argv[3])),
                     .keep_firing = std::chrono::seconds(std::atoi(argv[4]))};
  for (int i = 5; i < argc; ++i) {
    const std::string label = argv[i];
    const auto equals = label.find('=');
    options.labels[label.substr(0, equals)] = label.substr(equals + 1);
  }
  const auto metrics = std::make_shared<gx::MetricSet>(run);
  gx::AlertPush push(options, metrics);
  (void)push.start(run, gx::fakes::fake_model());

  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    std::string which;
    std::int64_t id = 0;
    words >> what >> which >> id;
    if (what == "open" || what == "close") {
      gr::Incident incident = incident_of(which, id);
      if (what == "close") incident.closed_at = wall_now();
      (void)push.export_incident(incident);
    } else if (what == "fail") {
      (void)push.set_run_state(gr::RunState::failed, which);
    } else if (what == "finish") {
      (void)push.finish(std::chrono::milliseconds(std::atoi(which.c_str())));
    }
    std::cout << "done\n" << std::flush;
  }
  const auto pushes = [&](const char* result) {
    return metrics->value(gr::Metric::alert_pushes_total, {result});
  };
  std::cout << pushes("ok") << ' ' << pushes("failed") << ' ' << push.last_error() << '\n';
  return 0;
}
