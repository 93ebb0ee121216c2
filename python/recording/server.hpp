#pragma once
// A recording behind an endpoint, as the run once was.
#include <cstdint>
#include <memory>
#include <string>

#include "exporters/api/endpoint.hpp"
#include "exporters/replay/recording.hpp"

namespace gradvane::python {

/// Serves until stop(), or until it goes.
class RecordingServer {
 public:
  /// Throws std::runtime_error where the address cannot be had.
  RecordingServer(const exporters::recording::Recording& recording, const std::string& file,
                  const std::string& address, std::uint16_t port,
                  const std::string& allowed_hosts = {});

  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  void stop() noexcept;

 private:
  std::unique_ptr<exporters::Endpoint> endpoint_;
  std::string url_;
};

}  // namespace gradvane::python
