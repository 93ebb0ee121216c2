#include "exporters/alert_push/alert_book.hpp"

#include <algorithm>
#include <utility>

#include "record/incident_classes.hpp"

namespace gradvane::exporters {

using record::AlertRule;
using record::kAlertRules;

namespace {

constexpr std::size_t kMostOpen =
    64;  // of one alert; incidents beyond that change nothing for a reader

std::size_t place_of(const AlertRule& rule) {
  return static_cast<std::size_t>(&rule - kAlertRules.data());
}

double seconds_of(std::chrono::seconds time) { return static_cast<double>(time.count()); }

}  // namespace

void AlertBook::put(const record::Incident& incident, std::string description) {
  const AlertRule& rule = alert_rule(incident.kind);
  Entry& entry = entries_[place_of(rule)];
  if (incident.closed_at) {
    close_one(entry, incident, rule, std::move(description));
  } else {
    open_one(entry, incident.id, incident.opened_at, std::move(description));
  }
}

void AlertBook::put_end_of_run(const AlertRule& rule, double wall, std::string description) {
  open_one(entries_[place_of(rule)], 0, wall, std::move(description));
}

void AlertBook::put_end() {
  has_ended_ = true;
  for (Entry& entry : entries_)
    if (!entry.open.empty()) ++entry.version;
}

/// One that begins while the last one still fires is the same alert.
void AlertBook::begin(Entry& entry, double since) {
  if (!entry.open.empty() || since <= entry.ends_at) return;
  entry.starts_at = since;
  entry.ends_at = 0;
  entry.is_known = false;
}

void AlertBook::open_one(Entry& entry, std::int64_t id, double since, std::string description) {
  begin(entry, since);
  const auto known = entry.open.find(id);
  if (known != entry.open.end() && known->second.description == description) return;
  entry.open.insert_or_assign(id, Open{since, std::move(description)});
  if (entry.open.size() > kMostOpen) entry.open.erase(entry.open.begin());
  ++entry.version;
}

void AlertBook::close_one(Entry& entry, const record::Incident& incident, const AlertRule& rule,
                          std::string description) const {
  begin(entry, incident.opened_at);
  const bool was_open = entry.open.erase(incident.id) > 0;
  const double end = end_of(incident, rule);
  if (!was_open && end <= entry.ends_at) return;  // said before
  entry.ends_at = std::max(entry.ends_at, end);
  entry.description = std::move(description);
  ++entry.version;
}

double AlertBook::end_of(const record::Incident& incident, const AlertRule& rule) const {
  const double closed = incident.closed_at.value_or(incident.opened_at);
  if (!rule.keeps_firing) return closed + seconds_of(windows_.others);
  return std::max(closed, incident.opened_at + seconds_of(windows_.event)) +
         seconds_of(windows_.keep_firing);
}

Alert AlertBook::alert_of(std::size_t index, double wall) const {
  const Entry& entry = entries_[index];
  Alert alert{.rule = &kAlertRules[index],
              .starts_at = entry.starts_at,
              .ends_at = entry.ends_at,
              .description = entry.description,
              .version = entry.version};
  if (!entry.open.empty()) {
    const auto left = has_ended_ ? kAfterTheEnd : kUnlessToldAgain;
    alert.ends_at = std::max(entry.ends_at, wall + seconds_of(left));
    alert.description = entry.open.rbegin()->second.description;
  }
  return alert;
}

std::vector<Alert> AlertBook::due(const AlertMoment& now) {
  std::vector<Alert> alerts;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const bool again = !entry.open.empty() && now.steady - entry.told_when >= kAgain;
    if (entry.told == entry.version && !again) continue;
    const bool is_over = entry.open.empty() && entry.ends_at <= now.wall;
    if (is_over && !entry.is_known) {
      entry.told = entry.version;
    } else {
      alerts.push_back(alert_of(i, now.wall));
    }
  }
  return alerts;
}

AlertBook::Clock::time_point AlertBook::next() const noexcept {
  auto soonest = Clock::time_point::max();
  for (const Entry& entry : entries_) {
    if (entry.told != entry.version) return Clock::time_point::min();
    if (!entry.open.empty()) soonest = std::min(soonest, entry.told_when + kAgain);
  }
  return soonest;
}

void AlertBook::note_told(std::span<const Alert> alerts, Clock::time_point when,
                          bool taken) noexcept {
  for (const Alert& alert : alerts) {
    Entry& entry = entries_[place_of(*alert.rule)];
    entry.told = alert.version;
    entry.told_when = when;
    if (taken) entry.is_known = true;
  }
}

std::size_t AlertBook::untold() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(
      entries_, [](const Entry& entry) { return entry.told != entry.version; }));
}

}  // namespace gradvane::exporters
