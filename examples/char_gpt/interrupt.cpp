#include "examples/char_gpt/interrupt.hpp"

#include <csignal>

namespace char_gpt {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

extern "C" void note_interrupt(int /*signal*/) { g_interrupted = 1; }

}  // namespace

void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = note_interrupt;
  // Back to the default after the first one, so that a second Ctrl-C always works.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() noexcept { return g_interrupted != 0; }

}  // namespace char_gpt
