#include "python/native/event_queue.hpp"

#include <chrono>

namespace gradvane::python {
namespace {

constexpr std::size_t kMostQueued = 1000;  ///< that no one has taken

template <typename T>
void queue(std::deque<T>& into, T item) {
  if (into.size() == kMostQueued) into.pop_front();
  into.push_back(std::move(item));
}

}  // namespace

void EventQueue::add_incident(const Incident& incident) {
  {
    const std::lock_guard lock(mutex_);
    queue(incidents_, incident);
  }
  came_.notify_all();
}

void EventQueue::add_line(std::string_view line) {
  {
    const std::lock_guard lock(mutex_);
    queue(lines_, std::string(line));
  }
  came_.notify_all();
}

void EventQueue::end() {
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  came_.notify_all();
}

std::pair<std::optional<Incident>, bool> EventQueue::next_incident(double seconds) {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, std::chrono::duration<double>(seconds),
                 [this] { return !incidents_.empty() || !lines_.empty() || has_ended_; });
  std::optional<Incident> incident;
  if (!incidents_.empty()) {
    incident = std::move(incidents_.front());
    incidents_.pop_front();
  }
  return {std::move(incident), has_ended_ && incidents_.empty()};
}

std::vector<std::string> EventQueue::take_lines() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines(lines_.begin(), lines_.end());
  lines_.clear();
  return lines;
}

}  // namespace gradvane::python
