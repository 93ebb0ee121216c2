#include "exporters/recorder/step_memory.hpp"

#include <algorithm>

namespace gradvane::exporters::recording {
namespace {

constexpr std::size_t kMostSpare = 2;

std::size_t size_of(const std::string& text) { return text.capacity() + sizeof(KeptStep); }

}  // namespace

bool StepMemory::add(std::uint64_t sequence, std::int64_t run_step, std::uint64_t model,
                     const std::string& frames) {
  const std::size_t needed = frames.size() + sizeof(KeptStep);
  if (needed > most_bytes_ || most_steps_ == 0) {
    ++dropped_;
    return false;
  }
  while (steps_.size() >= most_steps_) drop_oldest();
  // What waits for a step is used for this one, or goes before any step does.
  std::string text;
  const auto fits = std::ranges::find_if(spare_, [&](const std::string& one) {
    return one.capacity() >= frames.size() && one.capacity() / 2 <= frames.size();
  });
  if (fits != spare_.end()) {
    text.swap(*fits);
    bytes_ -= size_of(text);
    spare_.erase(fits);
  }
  const std::size_t holds = std::max(text.capacity(), frames.size()) + sizeof(KeptStep);
  while (bytes_ + holds > most_bytes_ && !spare_.empty()) give_up_spare();
  while (bytes_ + holds > most_bytes_ && !steps_.empty()) {
    drop_oldest();
    while (!spare_.empty()) give_up_spare();
  }
  if (bytes_ + holds > most_bytes_) text = std::string();  // it was made for a larger step
  text.assign(frames);
  bytes_ += size_of(text);
  steps_.push_back({sequence, run_step, model, std::move(text)});
  return true;
}

void StepMemory::drop_oldest() {
  std::string& text = steps_.front().frames;
  if (spare_.size() < kMostSpare)
    spare_.push_back(std::move(text));  // still counted
  else
    bytes_ -= size_of(text);
  steps_.pop_front();
  ++dropped_;
}

void StepMemory::give_up_spare() {
  bytes_ -= size_of(spare_.back());
  spare_.pop_back();
}

}  // namespace gradvane::exporters::recording
