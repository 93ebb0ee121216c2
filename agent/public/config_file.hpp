#pragma once
// The YAML file of options, read again when it changes while the run lasts.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "agent/public/options.hpp"
#include "agent/ranks/policy.hpp"
#include "exporters/files/file_stamp.hpp"
#include "record/run/run_info.hpp"

namespace gradvane::agent {

/// Whether an option may change while the run lasts.
[[nodiscard]] bool may_change(std::string_view key) noexcept;

/// What became of a change of the file.
struct ConfigChange {
  std::vector<std::string> lines;  ///< for the log: what changed, what did not, and why
  bool has_changed = false;        ///< of the options: then these hold from now on
  Options options;
  std::vector<record::Setting> settings;
};

/// Not thread-safe.
class ConfigFile {
 public:
  /// There is none.
  ConfigFile() = default;
  /// That of `resolved`, as it was read for it.
  /// @param shown  the options as users see them: `resolved.settings`, where the run may have got another name
  ConfigFile(const ResolvedOptions& resolved, std::vector<record::Setting> shown);

  /// To be called about once a second. A file that is being written is left alone until two calls have found it the
  /// same. One that cannot be read, or that sets what is not allowed, changes nothing. Absent: there is no news.
  /// @param now  seconds since the epoch
  [[nodiscard]] std::optional<ConfigChange> look(double now);

  /// Rank 0's policy holds here too, from now on.
  [[nodiscard]] ConfigChange follow(const ranks::Policy& policy, double now);

 private:
  void hold(record::Setting& held, const record::Setting& wanted, double now);
  [[nodiscard]] bool has_policy_of_ranks() const noexcept;
  [[nodiscard]] exporters::FileStamp stamp() const noexcept;
  [[nodiscard]] ConfigChange read(double now);
  [[nodiscard]] std::string why_unreadable() const;

  Options start_;  ///< as the run began
  ResolvedOptions resolved_;
  std::vector<record::Setting> asked_for_;  ///< as they were resolved last, in force or not
  /// First that of no file: the file may have changed since the options were resolved.
  exporters::FileStamp read_{.is_there = true};
  exporters::FileStamp seen_ = read_;
};

}  // namespace gradvane::agent
