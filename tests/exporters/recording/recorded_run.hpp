#pragma once
// A made-up run with the flight recorder, and what it left.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "exporters/recorder/flight_recorder.hpp"
#include "exporters/replay/recording.hpp"
#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/files/claimed.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters::fakes {

class RecordedRun {
 public:
  explicit RecordedRun(recording::RecorderOptions options = {}, int layers = 2)
      : RecordedRun(std::move(options), fake_model(layers)) {}
  RecordedRun(recording::RecorderOptions options, std::shared_ptr<const record::ModelInfo> trained)
      : model(std::move(trained)), training(model) {
    if (options.directory == nullptr) options.directory = claimed(scratch.path());
    directory = options.directory->path();
    recorder = std::make_unique<recording::FlightRecorder>(options, metrics);
  }

  ExportResult start() { return recorder->start(run, model); }
  ExportResult steps(int count) {
    ExportResult result = ExportResult::ok;
    for (int i = 0; i < count; ++i) {
      const auto& [record, detail] = training.next();
      if (const auto one = recorder->export_step(record, detail, *model); one != ExportResult::ok)
        result = one;
    }
    return result;
  }
  /// The next step, with a NaN, and its incident.
  record::Incident bad_step(std::int64_t id = 1) {
    auto& [record, detail] = training.next();
    training.poison_gradient(3, record::NonfiniteKind::nan);
    EXPECT_EQ(recorder->export_step(record, detail, *model), ExportResult::ok);
    record::Incident incident = fake_incident(id, record.run_step);
    incident.began_in = record::BeganIn::backward;
    incident.order = {{record::Site::grad, record.run_step, incident.first, incident.param,
                       record::NonfiniteCounts{1, 0, 0}}};
    return incident;
  }
  ExportResult finish() { return recorder->finish(std::chrono::seconds(1)); }

  [[nodiscard]] std::filesystem::path ring() const {
    return recording::RingWriter::path(directory, run.run, run.rank);
  }
  /// But for the lock.
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory))
      if (entry.path().extension() != ".lock") names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }

  Scratch scratch;
  std::filesystem::path directory;
  record::RunInfo run = fake_run();
  std::shared_ptr<MetricSet> metrics = std::make_shared<MetricSet>(fake_run());
  std::shared_ptr<const record::ModelInfo> model;
  FakeTraining training;
  std::unique_ptr<recording::FlightRecorder> recorder;
};

/// Fails the test where there is none.
inline std::shared_ptr<const recording::Recording> recording_in(const std::filesystem::path& path) {
  auto [recording, error] = recording::read_recording(path);
  EXPECT_TRUE(recording) << path << ": " << error;
  return recording ? recording : std::make_shared<const recording::Recording>();
}

inline std::vector<std::int64_t> run_steps(const recording::Recording& recording) {
  std::vector<std::int64_t> steps;
  for (const auto& step : recording.steps) steps.push_back(step.record.run_step);
  return steps;
}

inline std::vector<std::int64_t> from_to(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> steps;
  for (std::int64_t step = first; step <= last; ++step) steps.push_back(step);
  return steps;
}

}  // namespace gradvane::exporters::fakes
