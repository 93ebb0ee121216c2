#include "agent/worker/taken_signals.hpp"

#include <signal.h>

#include <string>

#include "agent/process/process_signals.hpp"
#include "record/run/end_reason.hpp"

namespace gradvane::agent {

using record::RunState;

TakenSignals::TakenSignals(bool handles_sigterm, RecorderSignal recorder_signal)
    : handles_sigterm_(handles_sigterm) {
  if (handles_sigterm) signals_ = {SIGINT, SIGTERM};
  if (recorder_signal != RecorderSignal::none)
    signals_.push_back(recorder_signal == RecorderSignal::usr1 ? SIGUSR1 : SIGUSR2);
}

void TakenSignals::take(UserCallbacks& callbacks) {
  has_signals_ = true;
  for (const int signal : signals_) {
    if (take_signal(signal) || signal == SIGTERM || signal == SIGINT) continue;
    callbacks.log(std::string("recorder_signal: ") + (signal == SIGUSR1 ? "SIGUSR1" : "SIGUSR2") +
                  " is handled by somebody else and asks for no recording");
  }
}

void TakenSignals::give_back() noexcept {
  if (!has_signals_.exchange(false)) return;
  for (const int signal : signals_) give_signal_back(signal);
}

/// Who types Ctrl-C waits for the end; who sends SIGTERM has a patience of its own.
std::optional<Ending> TakenSignals::ending() const {
  if (!handles_sigterm_) return std::nullopt;
  switch (ending_signal()) {
    case SIGTERM:
      return Ending{RunState::failed, std::string(record::kTerminatedText), Linger::yes,
                    /*is_by_signal=*/true};
    case SIGINT:
      return Ending{RunState::failed, std::string(record::kInterruptedText), Linger::no,
                    /*is_by_signal=*/true};
    default:
      return std::nullopt;
  }
}

}  // namespace gradvane::agent
