// Serves a made-up run, for tests in other languages and for looking at the page by hand.
//   fake_server [--steps N] [--layers N] [--poison STEP] [--state STATE] [--live MS] [--port P]
//               [--syncs cupti|yielded|taken|off] [--dir DIR]   for the endpoint file and the step log
//               [--web-config FILE] [--token TOKEN]
// Prints the URL, then serves until its standard input ends.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "exporters/api/endpoint.hpp"
#include "exporters/api/endpoint_file.hpp"
#include "exporters/board/status_board.hpp"
#include "exporters/exporter_set.hpp"
#include "exporters/prometheus/prometheus_exporter.hpp"
#include "exporters/step_log/step_log.hpp"
#include "exporters/web/configured_access.hpp"
#include "record/names.hpp"
#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/files/claimed.hpp"

namespace gx = gradvane::exporters;
namespace gr = gradvane::record;

namespace {

/// `off`: nobody has ever said anything.
void export_syncs(gx::Exporter& exporter, const std::string& how, int steps) {
  if (how == "off") return;
  gr::SyncSummary syncs = how == "taken"
                              ? gx::fakes::blind_syncs(gr::SyncSource::none, gr::SyncReason::taken)
                              : gx::fakes::fake_syncs(steps);
  if (how == "taken") syncs.detail = "nsys <profile>";
  if (how == "yielded") {
    syncs.source = gr::SyncSource::none;
    syncs.reason = gr::SyncReason::yielded;
    syncs.blind_seconds = 2.5;
    syncs.gaps = 1;
  }
  (void)exporter.export_syncs(std::make_shared<const gr::SyncSummary>(std::move(syncs)));
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{
      {"--steps", "120"},       {"--layers", "2"},    {"--poison", "0"}, {"--state", "running"},
      {"--live", "0"},          {"--port", "0"},      {"--dir", ""},     {"--syncs", "cupti"},
      {"--max-series", "2000"}, {"--web-config", ""}, {"--token", ""}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const auto number = [&](const char* key) { return std::atoi(options[key].c_str()); };

  const auto model = gx::fakes::fake_model(number("--layers"));
  auto metrics = std::make_shared<gx::MetricSet>(
      gx::fakes::fake_run(),
      gx::MetricSetOptions{.max_series = static_cast<std::size_t>(number("--max-series"))});
  auto board = std::make_shared<gx::StatusBoard>();
  gx::ExporterSet exporters(metrics);
  exporters.add(std::make_shared<gx::PrometheusExporter>(metrics));
  exporters.add(board);
  const auto history = std::make_shared<gx::RunHistory>();
  exporters.add(history);
  const std::filesystem::path directory = options["--dir"];
  if (!directory.empty()) {
    exporters.add(
        std::make_shared<gx::StepLog>(gx::StepLogOptions{.path = directory / "steps.jsonl"}));
  }
  (void)exporters.start(gx::fakes::fake_run(), model);

  gx::fakes::FakeTraining training(model);
  const auto one_step = [&](int step) {
    training.next();
    if (step == number("--poison")) training.poison_gradient(3, gr::NonfiniteKind::nan);
    auto& [record, detail] = training.current();
    if (options["--syncs"] != "cupti") record.syncs.reset();
    (void)exporters.set_run_state(gr::RunState::running, {});
    (void)exporters.export_step(record, detail, *model);
    export_syncs(exporters, options["--syncs"], step);
    if (step == number("--poison")) {
      (void)exporters.export_incident(gx::fakes::fake_incident(1, step));
    }
  };
  for (int step = 1; step <= number("--steps"); ++step) one_step(step);
  for (const gr::RunState state : {gr::RunState::starting, gr::RunState::stalled,
                                   gr::RunState::finished, gr::RunState::failed}) {
    if (name_of(state) == options["--state"]) {
      (void)exporters.set_run_state(state, state == gr::RunState::failed ? "out of <memory>" : "");
    }
  }

  gx::Endpoint endpoint(metrics, board, history);
  gx::EndpointOptions wanted{.port = static_cast<std::uint16_t>(number("--port"))};
  wanted.http.token = options["--token"];
  try {
    if (!options["--web-config"].empty())
      wanted.http.web = std::make_shared<gx::ConfiguredAccess>(
          options["--web-config"],
          [](const std::string& note) { std::fprintf(stderr, "%s\n", note.c_str()); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  const auto started = endpoint.start(wanted);
  if (!started.error.empty()) {
    std::fprintf(stderr, "%s\n", started.error.c_str());
    return 1;
  }
  std::optional<gx::EndpointFile> file;
  if (!directory.empty()) {
    file.emplace(gx::fakes::claimed(directory), gx::fakes::fake_run());
    (void)file->write(started.url, gr::RunState::running);
  }
  std::printf("%s\n", started.url.c_str());
  std::fflush(stdout);

  std::jthread live;
  if (number("--live") > 0) {
    live = std::jthread([&](const std::stop_token& stop) {
      for (int step = number("--steps") + 1; !stop.stop_requested(); ++step) {
        one_step(step);
        std::this_thread::sleep_for(std::chrono::milliseconds(number("--live")));
      }
    });
  }
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  if (file) (void)file->write(started.url, gr::RunState::finished);
  return 0;
}
