#include "collectors/steps/norm_exchange.hpp"

#include <chrono>

namespace gradvane::collectors {

bool NormExchange::open() {
  const std::lock_guard lock(mutex_);
  is_open_ = allowed_;
  return is_open_;
}

void NormExchange::close() {
  {
    const std::lock_guard lock(mutex_);
    is_open_ = false;
  }
  posted_.notify_all();
}

void NormExchange::fail() {
  {
    const std::lock_guard lock(mutex_);
    ++failures_;
  }
  close();
}

int NormExchange::take_failures() {
  const std::lock_guard lock(mutex_);
  return std::exchange(failures_, 0);
}

bool NormExchange::is_open() const {
  const std::lock_guard lock(mutex_);
  return is_open_;
}

void NormExchange::post(const Contribution& contribution) {
  {
    const std::lock_guard lock(mutex_);
    if (posts_.size() == kMostKept) posts_.pop_front();
    posts_.push_back(contribution);
  }
  posted_.notify_all();
}

std::vector<NormExchange::Contribution> NormExchange::take(double seconds) {
  std::unique_lock lock(mutex_);
  posted_.wait_for(lock, std::chrono::duration<double>(seconds),
                   [this] { return !posts_.empty() || !is_open_; });
  std::vector<Contribution> taken(posts_.begin(), posts_.end());
  posts_.clear();
  return taken;
}

void NormExchange::give(std::int64_t step, std::int32_t optimizer, double norm) {
  const std::lock_guard lock(mutex_);
  if (given_.size() == kMostKept) given_.erase(given_.begin());
  given_[{step, optimizer}] = norm;
}

std::optional<double> NormExchange::collect(std::int64_t step, std::int32_t optimizer) {
  const std::lock_guard lock(mutex_);
  const auto found = given_.find({step, optimizer});
  if (found == given_.end()) return std::nullopt;
  const double norm = found->second;
  given_.erase(found);
  return norm;
}

}  // namespace gradvane::collectors
