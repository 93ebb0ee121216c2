#pragma once
// Recordings that are written on request and at the end of a run, and the line that shows where.
#include <filesystem>
#include <memory>

#include "agent/outlets/user_callbacks.hpp"
#include "exporters/recorder/flight_recorder.hpp"

namespace gradvane::agent {

/// The recorder itself writes a file when an incident opens. Without a recorder every call does
/// nothing.
/// Threading: the worker's.
class Recordings {
 public:
  /// `recorder` may be null. `requests` were made before this run: they are no concern of it.
  Recordings(std::shared_ptr<exporters::recording::FlightRecorder> recorder,
             UserCallbacks& callbacks, int requests)
      : recorder_(std::move(recorder)), callbacks_(callbacks), requests_(requests) {}

  /// Writes one if `requests`, all that there ever were, have become more.
  void write_on_request(int requests);
  /// A run that ends well leaves no recording.
  void write_at_the_end(bool has_failed, bool has_open_incident) noexcept;
  /// A file is written when an incident opens; a later incident may be in the same one.
  void log_new_file() noexcept;

 private:
  std::shared_ptr<exporters::recording::FlightRecorder> recorder_;
  UserCallbacks& callbacks_;
  int requests_;                  ///< answered
  std::filesystem::path logged_;  ///< the last file
};

}  // namespace gradvane::agent
