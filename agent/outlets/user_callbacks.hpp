#pragma once
// The callbacks that the user gave in the options: the log, and what receives incidents.
#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "agent/include/gradvane/agent.hpp"
#include "record/incident.hpp"

namespace gradvane::agent {

/// An exception of a callback is dropped: the user's trouble must not become ours.
/// Threading: log() from the thread of the set-up and from the worker's, report() from the
/// worker's, stop() from any.
class UserCallbacks {
 public:
  explicit UserCallbacks(const Options& options)
      : log_(options.log), on_incident_(options.on_incident) {}
  UserCallbacks(const UserCallbacks&) = delete;  // who calls holds its address
  UserCallbacks& operator=(const UserCallbacks&) = delete;

  [[nodiscard]] bool has_log() const noexcept { return static_cast<bool>(log_); }
  void log(const std::string& line) noexcept;
  void report(const record::Incident& incident) noexcept;
  /// Nothing is called from now on: what the callbacks use may be gone.
  void stop() noexcept { is_stopped_ = true; }

 private:
  std::function<void(std::string_view line)> log_;
  std::function<void(const Incident& incident)> on_incident_;
  std::atomic<bool> is_stopped_{false};
};

}  // namespace gradvane::agent
