#pragma once
// Incidents and log lines on their way from the agent's threads to Python.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/include/gradvane/agent.hpp"

namespace gradvane::python {

/// Keeps the newest of each if no one takes them. Any thread.
class EventQueue {
 public:
  void add_incident(const Incident& incident);
  void add_line(std::string_view line);
  /// The run has ended: nothing waits any longer.
  void end();

  /// Waits up to `seconds` for an incident, a line or the end. Returns the oldest incident, if any,
  /// and whether the run has ended and this is the last one.
  std::pair<std::optional<Incident>, bool> next_incident(double seconds);
  /// The lines since the last call.
  std::vector<std::string> take_lines();

 private:
  std::mutex mutex_;  ///< guards what follows
  std::condition_variable came_;
  std::deque<Incident> incidents_;
  std::deque<std::string> lines_;
  bool has_ended_ = false;
};

}  // namespace gradvane::python
