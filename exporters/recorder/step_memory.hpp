#pragma once
// The last steps of a run in memory, as the frames that a file would have.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace gradvane::exporters::recording {

struct KeptStep {
  std::uint64_t sequence = 0;  ///< of its last frame
  std::int64_t run_step = 0;
  std::uint64_t model = 0;  ///< ModelInfo::id
  std::string frames;       ///< step and detail
};

/// Bounded twice, by steps and by bytes; the oldest ones go. In the steady state it allocates next to
/// nothing: what goes leaves its memory to what comes.
class StepMemory {
 public:
  StepMemory(std::size_t bytes, std::size_t steps) : most_bytes_(bytes), most_steps_(steps) {}

  /// False where the step alone is too large.
  bool add(std::uint64_t sequence, std::int64_t run_step, std::uint64_t model,
           const std::string& frames);

  [[nodiscard]] const std::deque<KeptStep>& steps() const noexcept { return steps_; }
  /// Of everything that it holds, whether it is in use or waiting for the next step.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::int64_t dropped() const noexcept { return dropped_; }

 private:
  void drop_oldest();
  void give_up_spare();

  std::size_t most_bytes_;
  std::size_t most_steps_;
  std::size_t bytes_ = 0;
  std::int64_t dropped_ = 0;
  std::deque<KeptStep> steps_;
  std::vector<std::string> spare_;  ///< at most a few
};

}  // namespace gradvane::exporters::recording
