#pragma once
// Which alerts there are to tell of, and when: incidents in, alerts out. One alert for each rule,
// because a process has one set of labels for it; what is newer takes the place of what was not
// told yet.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "exporters/alert_push/alert.hpp"
#include "record/incident.hpp"

namespace gradvane::exporters {

/// As the windows of the rules: an alert that ends before the rule's does would be told again by
/// it, and one that ends before Alertmanager's `group_wait` is over is told to nobody.
struct AlertWindows {
  std::chrono::seconds event = std::chrono::minutes(5);  ///< an event counts for so long
  /// and its alert stays so long after its reason is gone
  std::chrono::seconds keep_firing = std::chrono::minutes(10);
  /// An alert lasts at least this long after the end of its incident. Ranks of a run push the same alert, so one of
  /// them must not end it before the others have reported again.
  std::chrono::seconds others = std::chrono::seconds(0);
};

struct AlertMoment {
  double wall = 0;  ///< seconds since the epoch
  std::chrono::steady_clock::time_point steady{};
};

/// Threading: none. Throws std::bad_alloc only.
class AlertBook {
 public:
  using Clock = std::chrono::steady_clock;
  /// While its reason lasts an alert is told again so often,
  static constexpr std::chrono::seconds kAgain{60};
  /// and ends so long after it was told last, in case that the process is gone;
  static constexpr std::chrono::seconds kUnlessToldAgain{240};
  /// unless the process says that it goes: then a person is to be told, who may be slow.
  static constexpr std::chrono::seconds kAfterTheEnd{900};

  explicit AlertBook(AlertWindows windows) : windows_(windows) {}

  /// An incident that opened, grew or closed, in words for a person.
  void put(const record::Incident& incident, std::string description);
  /// How the run ended, if it did not end well.
  void put_end_of_run(const record::AlertRule& rule, double wall, std::string description);
  /// Nothing more will be reported: what is open is reported once more, with a later end.
  void put_end();

  /// What is to be told now. What is over without ever having been told is forgotten.
  [[nodiscard]] std::vector<Alert> due(const AlertMoment& now);
  /// When there is something to be told; Clock::time_point::max(): never, as things are.
  [[nodiscard]] Clock::time_point next() const noexcept;
  /// `alerts` were told. Where they were not `taken`, telling the same at once again would not
  /// help.
  void note_told(std::span<const Alert> alerts, Clock::time_point when, bool taken) noexcept;
  /// Alerts of which the latest was not told.
  [[nodiscard]] std::size_t untold() const noexcept;

 private:
  struct Open {
    double since = 0;
    std::string description;
  };
  struct Entry {
    std::map<std::int64_t, Open> open;  ///< by the incident's number
    double starts_at = 0;
    double ends_at = 0;       ///< of what has closed
    std::string description;  ///< of what has closed
    std::uint64_t version = 0;
    std::uint64_t told = 0;
    Clock::time_point told_when{};
    bool is_known = false;  ///< Alertmanager has taken it since it began
  };

  static void open_one(Entry& entry, std::int64_t id, double since, std::string description);
  void close_one(Entry& entry, const record::Incident& incident, const record::AlertRule& rule,
                 std::string description) const;
  static void begin(Entry& entry, double since);
  [[nodiscard]] double end_of(const record::Incident& incident,
                              const record::AlertRule& rule) const;
  [[nodiscard]] Alert alert_of(std::size_t index, double wall) const;

  AlertWindows windows_;
  bool has_ended_ = false;
  std::array<Entry, record::kAlertRules.size()> entries_{};
};

}  // namespace gradvane::exporters
