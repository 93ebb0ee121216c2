#include "agent/outlets/user_callbacks.hpp"

#include "agent/public/step_result.hpp"

namespace gradvane::agent {

void UserCallbacks::log(const std::string& line) noexcept {
  if (!log_ || is_stopped_) return;
  try {
    log_("gradvane: " + line);
  } catch (...) {  // the user's callback: its trouble must not become ours
  }
}

void UserCallbacks::report(const record::Incident& incident) noexcept {
  if (!on_incident_ || is_stopped_) return;
  try {
    on_incident_(incident_of(incident));
  } catch (...) {  // as with the log
  }
}

}  // namespace gradvane::agent
