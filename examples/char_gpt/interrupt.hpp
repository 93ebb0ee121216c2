#pragma once
// Ctrl-C as a request to end the run, not the process.

namespace char_gpt {

/// From now on the first Ctrl-C is noted instead of ending the process. The second one ends it.
void catch_interrupts();

[[nodiscard]] bool interrupted() noexcept;

}  // namespace char_gpt
