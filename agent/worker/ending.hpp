#pragma once
// How a run ends.
#include <chrono>
#include <cstdint>
#include <string>

#include "record/run/run_info.hpp"

namespace gradvane::agent {

/// Whether the end of a run waits for one more scrape.
enum class Linger : std::uint8_t { no, yes };

struct Ending {
  record::RunState state = record::RunState::finished;
  std::string reason = {};
  Linger linger = Linger::no;
  bool is_by_signal = false;  ///< the process dies by it: until then the program trains on
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
};

/// For answers on their way: viewers learn from them that it is over.
inline constexpr std::chrono::milliseconds kAnswerBudget = std::chrono::seconds(5);
/// For what is left to do after Ctrl-C.
inline constexpr std::chrono::milliseconds kCutBudget{500};

}  // namespace gradvane::agent
