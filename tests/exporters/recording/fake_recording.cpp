// Leaves recordings of made-up runs in a directory, for tests in other languages and for looking at by hand.
//   fake_recording DIR [--steps N] [--fault STEP] [--end finished|failed|killed] [--scale FACTOR]
// An incident's file if there is a fault, and the ring. Prints the paths, the ring last.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "exporters/recorder/flight_recorder.hpp"
#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/files/claimed.hpp"

namespace gx = gradvane::exporters;
namespace gr = gradvane::record;

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{
      {"--steps", "60"}, {"--fault", "0"}, {"--end", "failed"}, {"--scale", "1"}};
  if (argc < 2) return 2;
  for (int i = 2; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const int steps = std::atoi(options["--steps"].c_str());
  const int fault = std::atoi(options["--fault"].c_str());
  const double scale = std::atof(options["--scale"].c_str());

  const auto run = gx::fakes::fake_run();
  const auto model = gx::fakes::fake_model();
  gx::recording::FlightRecorder recorder(
      {.directory = gx::fakes::claimed(argv[1]), .disk_bytes = 1 << 20}, nullptr);
  bool ok = recorder.start(run, model) == gx::ExportResult::ok;
  (void)recorder.set_run_state(gr::RunState::running, "");
  gx::fakes::FakeTraining training(model);
  for (int step = 1; step <= steps; ++step) {
    training.next();
    if (step == fault) training.poison_gradient(3, gr::NonfiniteKind::nan);
    auto& [record, detail] = training.current();
    // Another run from its middle on.
    if (2 * step > steps) record.grad_norm = *record.grad_norm * scale;
    if (2 * step > steps) detail.params[0].grad->norm *= scale;
    ok = recorder.export_step(record, detail, *model) == gx::ExportResult::ok && ok;
    if (step == fault)
      ok =
          recorder.export_incident(gx::fakes::fake_incident(1, step)) == gx::ExportResult::ok && ok;
  }
  std::printf("%s",
              recorder.last_file().empty() ? "" : (recorder.last_file().string() + "\n").c_str());
  std::printf("%s\n", gx::recording::RingWriter::path(argv[1], run.run, run.rank).c_str());
  std::fflush(stdout);
  if (options["--end"] == "killed") ::_exit(ok ? 0 : 1);
  const bool failed = options["--end"] == "failed";
  (void)recorder.set_run_state(failed ? gr::RunState::failed : gr::RunState::finished,
                               failed ? "ValueError: loss is nan" : "");
  return recorder.finish(std::chrono::seconds(1)) == gx::ExportResult::ok && ok ? 0 : 1;
}
