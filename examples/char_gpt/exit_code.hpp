#pragma once
// What the program's exit code says; --help lists them.

namespace char_gpt {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadOption = 2;
inline constexpr int kExitStopped = 83;       // by a policy of Gradvane, as gradvane run has it
inline constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as a shell would say

}  // namespace char_gpt
