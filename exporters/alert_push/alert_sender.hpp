#pragma once
// A thread that tells Alertmanager what is in the book, and tries again where that fails.
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "exporters/alert_push/alert_book.hpp"
#include "exporters/alert_push/alert_url.hpp"
#include "exporters/alert_push/push_access.hpp"
#include "exporters/client/resolve_host.hpp"
#include "record/incident.hpp"

namespace gradvane::exporters {

struct AlertSenderOptions {
  AlertUrl url;
  AlertWords words;
  AlertWindows windows = {};
  ResolveHost resolve = resolve_host;
  std::shared_ptr<PushAccess> access = nullptr;  ///< null: a plain request
  /// On the sender's thread: so many alerts were taken, or were not.
  std::function<void(bool taken, std::size_t alerts)> counted = {};
  std::chrono::milliseconds deadline = std::chrono::seconds(2);  ///< of each try
  /// After a try that failed; doubles with each one more.
  std::chrono::milliseconds first_pause{500};
  std::chrono::milliseconds longest_pause = std::chrono::seconds(30);
  /// Between two requests: incidents that come thick and fast go together.
  std::chrono::milliseconds apart = std::chrono::seconds(1);
};

/// Threading: calls come from one thread.
class AlertSender {
 public:
  explicit AlertSender(AlertSenderOptions options);
  /// finish() without a budget. In a forked child leave_to_parent() comes first.
  ~AlertSender();
  AlertSender(const AlertSender&) = delete;  // one thread
  AlertSender& operator=(const AlertSender&) = delete;

  /// The thread starts with the first incident that has a rule. Throws std::bad_alloc and
  /// std::system_error (no thread); then it is tried again with the next one.
  void put(const record::Incident& incident);
  void put_end_of_run(const record::AlertRule& rule, double wall, const std::string& reason);

  /// Tells what is untold within `budget` and ends the thread. A thread that cannot be ended,
  /// because it waits for the addresses of a host, is left behind. No effect the second time.
  void finish(std::chrono::milliseconds budget);

  /// For the child of a fork, where the thread does not exist and its locks may be held for ever.
  void leave_to_parent() noexcept;

  /// Why the latest try failed; empty where it did not.
  [[nodiscard]] std::string last_error() const;
  void set_generator_url(std::string url);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace gradvane::exporters
