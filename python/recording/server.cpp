#include "python/recording/server.hpp"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "exporters/board/status_board.hpp"
#include "exporters/exporter_set.hpp"
#include "exporters/metric_set.hpp"
#include "exporters/prometheus/prometheus_exporter.hpp"
#include "exporters/replay/replay.hpp"

namespace gradvane::python {

namespace gx = exporters;

RecordingServer::RecordingServer(const gx::recording::Recording& recording, const std::string& file,
                                 const std::string& address, std::uint16_t port,
                                 const std::string& allowed_hosts) {
  const auto metrics = std::make_shared<gx::MetricSet>(recording.run.value_or(record::RunInfo{}));
  const auto board =
      std::make_shared<gx::StatusBoard>(std::max<std::size_t>(recording.steps.size(), 1));
  board->set_recording(std::filesystem::path(file).filename().string());
  gx::ExporterSet all(metrics);
  all.add(std::make_shared<gx::PrometheusExporter>(metrics));
  all.add(board);
  const auto history = std::make_shared<gx::RunHistory>();
  all.add(history);
  gx::recording::replay(recording, all);
  endpoint_ = std::make_unique<gx::Endpoint>(metrics, board, history);
  const auto started =
      endpoint_->start({.address = address, .port = port, .allowed_hosts = allowed_hosts});
  if (!started.error.empty()) throw std::runtime_error(started.error);
  url_ = started.url;
}

void RecordingServer::stop() noexcept { endpoint_->stop(std::chrono::seconds(1)); }

}  // namespace gradvane::python
