#pragma once
// One alert as Alertmanager's v2 API takes it.
#include <cstdint>
#include <span>
#include <string>

#include "exporters/alert_push/alert_labels.hpp"
#include "record/alert_rules.hpp"

namespace gradvane::exporters {

struct Alert {
  const record::AlertRule* rule = nullptr;  ///< never null
  double starts_at = 0;                     ///< seconds since the epoch
  double ends_at = 0;  ///< to come: it fires until then, if nothing else is said
  std::string description;
  std::uint64_t version = 0;  ///< of what is known of it: a newer one says something else
};

/// What all alerts of a process have in common.
struct AlertWords {
  std::string run;
  std::int32_t rank = 0;  ///< of the process, for its descriptions: an alert is of the run
  AlertLabels labels = {};
  std::string runbook_base = {};   ///< empty: the endpoint at generator_url, which has them
  std::string generator_url = {};  ///< empty: none
};

/// The body of a request. Text that is not UTF-8 is mended. Throws std::bad_alloc only.
[[nodiscard]] std::string alerts_json(std::span<const Alert> alerts, const AlertWords& words);

/// 2026-11-21T03:55:10.250Z, from seconds since the epoch; of a time that is none, or of no year
/// with four digits, the nearest that is.
[[nodiscard]] std::string rfc3339(double seconds);

}  // namespace gradvane::exporters
