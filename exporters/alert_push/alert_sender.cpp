#include "exporters/alert_push/alert_sender.hpp"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "exporters/alert_push/http_post.hpp"
#include "exporters/signals_blocked.hpp"
#include "record/clocks.hpp"

namespace gradvane::exporters {
namespace {

using Clock = AlertBook::Clock;

constexpr int kNiceness = 5;                         // training goes first
constexpr std::chrono::milliseconds kGrace{100};     // for the thread to notice that time is up
constexpr std::chrono::hours kLongWait{1};           // looks again, for no reason
constexpr std::chrono::milliseconds kLastPause{50};  // after a try at the end; doubles, too

}  // namespace

/// Shared by the owner and the thread, so that a thread that had to be left behind still has it.
class AlertSender::Impl : public std::enable_shared_from_this<AlertSender::Impl> {
 public:
  explicit Impl(AlertSenderOptions options)
      : options_(std::move(options)),
        who_("Run " + options_.words.run + ", rank " + std::to_string(options_.words.rank) + ": "),
        book_(options_.windows),
        post_(options_.url, options_.resolve, options_.access) {}

  void put(const record::Incident& incident) {
    const std::lock_guard lock(mutex_);
    book_.put(incident, sentence(incident.evidence, alert_rule(incident.kind)));
    wake();
  }

  void put_end_of_run(const record::AlertRule& rule, double wall, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    book_.put_end_of_run(rule, wall, sentence(reason, rule));
    wake();
  }

  void finish(std::chrono::milliseconds budget) {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(is_ending_, true)) return;
      end_by_ = Clock::now() + budget;
      not_before_ = Clock::time_point::min();
      next_pause_ = {};
      book_.put_end();
    }
    if (thread_.joinable()) {
      post_.hurry(end_by_);
      changed_.notify_all();
      if (done_.wait_until(end_by_ + kGrace) == std::future_status::ready) {
        thread_.join();
      } else {
        thread_.detach();  // it waits for the addresses of a host, which nobody can hurry
      }
    }
    const std::lock_guard lock(mutex_);
    is_abandoned_ = true;
    if (book_.untold() > 0) count(false, book_.untold());
  }

  [[nodiscard]] std::string last_error() const {
    const std::lock_guard lock(mutex_);
    return last_error_;
  }

  void set_generator_url(std::string url) {
    const std::lock_guard lock(mutex_);
    options_.words.generator_url = std::move(url);
  }

 private:
  [[nodiscard]] std::string sentence(const std::string& what, const record::AlertRule& rule) const {
    return who_ + (what.empty() ? std::string(rule.summary) : what) + '.';
  }

  void count(bool taken, std::size_t alerts) {
    if (options_.counted) options_.counted(taken, alerts);
  }

  /// Under the lock, after the book was written to.
  void wake() {
    if (!thread_.joinable() && !is_ending_) {
      const SignalsBlocked for_the_thread_to_inherit;
      thread_ = std::jthread([self = shared_from_this()] { self->run(); });
    }
    changed_.notify_all();
  }

  void run() noexcept {
    pthread_setname_np(pthread_self(), "gradvane-alerts");
    const auto self = static_cast<id_t>(gettid());
    ::setpriority(PRIO_PROCESS, self, ::getpriority(PRIO_PROCESS, self) + kNiceness);
    std::unique_lock lock(mutex_);
    while (!is_over()) {
      try {
        tell_or_wait(lock);
      } catch (...) {  // no memory for a request: later there may be
        if (!lock.owns_lock()) lock.lock();
        pause("no memory");
      }
    }
    lock.unlock();
    over_.set_value();
  }

  [[nodiscard]] bool is_over() const {
    if (is_abandoned_) return true;
    return is_ending_ && (book_.untold() == 0 || Clock::now() >= end_by_);
  }

  void tell_or_wait(std::unique_lock<std::mutex>& lock) {
    const auto now = Clock::now();
    const auto next = std::max(book_.next(), not_before_);
    if (next > now) {
      const auto until = is_ending_ ? std::min(next, end_by_) : std::min(next, now + kLongWait);
      changed_.wait_until(lock, until);
      return;
    }
    const std::vector<Alert> alerts = book_.due({record::unix_time(), Clock::now()});
    if (alerts.empty()) return;
    const std::string body = alerts_json(alerts, options_.words);
    lock.unlock();
    const HttpAnswer answer = post_.send(body, Clock::now() + options_.deadline);
    lock.lock();
    if (!is_abandoned_) note(alerts, answer);
  }

  void note(std::span<const Alert> alerts, const HttpAnswer& answer) {
    count(answer.is_taken(), alerts.size());
    if (!answer.is_taken() && !answer.is_refused()) {
      pause(answer.error);
      return;
    }
    last_error_ = answer.error;
    book_.note_told(alerts, Clock::now(), answer.is_taken());
    next_pause_ = {};
    not_before_ = Clock::now() + (is_ending_ ? std::chrono::milliseconds(0) : options_.apart);
  }

  void pause(const std::string& why) {
    const auto shortest =
        is_ending_ ? std::min(kLastPause, options_.first_pause) : options_.first_pause;
    next_pause_ = std::clamp(2 * next_pause_, shortest, options_.longest_pause);
    const auto now = Clock::now();
    not_before_ = now + next_pause_;
    // A try that was cut off by the end says less than the one before it.
    if (is_ending_ && now >= end_by_ && !last_error_.empty()) return;
    try {
      last_error_ = why;
    } catch (...) {  // the pause is what matters
    }
  }

  AlertSenderOptions options_;
  std::string who_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  AlertBook book_;
  HttpPost post_;
  Clock::time_point not_before_ = Clock::time_point::min();
  std::chrono::milliseconds next_pause_{};
  std::string last_error_;
  bool is_ending_ = false;
  bool is_abandoned_ = false;
  Clock::time_point end_by_{};
  std::promise<void> over_;
  std::future<void> done_ = over_.get_future();
  std::jthread thread_;
};

AlertSender::AlertSender(AlertSenderOptions options)
    : impl_(std::make_shared<Impl>(std::move(options))) {}

AlertSender::~AlertSender() {
  if (impl_ == nullptr) return;
  try {
    impl_->finish(std::chrono::milliseconds(0));
  } catch (...) {  // no memory to say so: the thread sees it with the next deadline
  }
}

void AlertSender::put(const record::Incident& incident) { impl_->put(incident); }

void AlertSender::put_end_of_run(const record::AlertRule& rule, double wall,
                                 const std::string& reason) {
  impl_->put_end_of_run(rule, wall, reason);
}

void AlertSender::finish(std::chrono::milliseconds budget) { impl_->finish(budget); }

void AlertSender::leave_to_parent() noexcept { new std::shared_ptr<Impl>(std::move(impl_)); }

std::string AlertSender::last_error() const { return impl_->last_error(); }

void AlertSender::set_generator_url(std::string url) { impl_->set_generator_url(std::move(url)); }

}  // namespace gradvane::exporters
