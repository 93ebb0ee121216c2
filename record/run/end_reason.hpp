#pragma once
// Why a run ended: a few reasons that alerts can tell apart, from the text that the run's state has.
#include <cstdint>
#include <string_view>

#include "record/names.hpp"
#include "record/run/run_info.hpp"

namespace gradvane::record {

enum class EndReason : std::uint8_t {
  finished,     ///< it ended well
  error,        ///< an exception, or the program reported a failure
  exit_status,  ///< the program chose an exit status other than 0
  terminated,   ///< SIGTERM: a scheduler, a time limit, a preemption
  interrupted,  ///< Ctrl-C: someone sits in front of it
  stopped,      ///< the policy `on_nonfinite` or `on_divergence` stopped it
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<EndReason> =
    std::to_array<std::string_view>(
        {"finished", "error", "exit_status", "terminated", "interrupted", "stopped"});

/// The texts of ends by a signal, and what the other texts begin with.
inline constexpr std::string_view kTerminatedText = "SIGTERM";
inline constexpr std::string_view kInterruptedText = "interrupted (SIGINT)";
inline constexpr std::string_view kKeyboardInterruptText = "KeyboardInterrupt";  ///< in Python
inline constexpr std::string_view kExitStatusText = "exit status ";
inline constexpr std::string_view kStoppedText = "stopped: ";

/// Of a run that is over, with the text of its state.
constexpr EndReason end_reason(RunState state, std::string_view text) noexcept {
  if (state == RunState::finished) return EndReason::finished;
  if (text == kTerminatedText) return EndReason::terminated;
  if (text == kInterruptedText || text == kKeyboardInterruptText ||
      (text.starts_with(kKeyboardInterruptText) &&
       text.substr(kKeyboardInterruptText.size()).starts_with(": ")))
    return EndReason::interrupted;
  if (text.starts_with(kExitStatusText)) return EndReason::exit_status;
  if (text.starts_with(kStoppedText)) return EndReason::stopped;
  return EndReason::error;
}

}  // namespace gradvane::record
