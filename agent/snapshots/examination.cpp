#include "agent/snapshots/examination.hpp"

#include <unistd.h>

#include <exception>
#include <utility>

#include "exporters/signals_blocked.hpp"

namespace gradvane::agent {

Examined examined(const StateCopy& copy, const std::set<std::string>& masks) {
  Examined found{.nonfinite = copy.nonfinite(masks)};
  if (found.nonfinite.empty()) found.checksum = copy.checksum();
  return found;
}

Examination::Examination(const StateCopy& copy, const std::set<std::string>& masks)
    : owner_(::getpid()) {
  const exporters::SignalsBlocked for_the_thread_to_inherit;
  thread_ = std::thread([this, &copy, &masks]() noexcept {
    try {
      found_ = examined(copy, masks);
    } catch (...) {
      error_ = std::current_exception();
    }
    is_over_.store(true, std::memory_order_release);
  });
}

Examination::~Examination() {
  if (!thread_.joinable()) return;
  if (::getpid() == owner_)
    thread_.join();
  else
    thread_.detach();  // a forked child does not have it
}

Examined Examination::result() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(error_);
  return std::move(found_);
}

}  // namespace gradvane::agent
