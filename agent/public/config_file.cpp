#include "agent/public/config_file.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <new>
#include <utility>

#include "agent/public/option_table.hpp"

namespace gradvane::agent {
namespace {

/// Options that take effect at the next step. The others were used at the start.
constexpr std::array<std::string_view, 15> kMayChange{
    "weight_every",      "stall_seconds",     "stall_pause_seconds",
    "sync_budget",       "sync_budget_after", "detect",
    "loss_sigma",        "loss_ratio",        "loss_absolute",
    "random_guess_loss", "exploding_factor",  "vanishing_share",
    "drift_threshold",   "dead_after",        "cost_budget"};
constexpr std::array<std::string_view, 4> kPolicy{"on_nonfinite", "on_divergence", "skip_limit",
                                                  "skip_norm"};
constexpr std::int64_t kLargestFile = std::int64_t{1} << 20;

std::string shown(const std::string& value) { return value.empty() ? "empty" : value; }

std::string line(const std::string& key, const std::string& value, const std::string& before,
                 const std::string& because = {}) {
  return "config: " + key + " is " + shown(value) + " from now on" + because + "; it was " +
         shown(before);
}

bool is_policy(std::string_view key) noexcept { return std::ranges::count(kPolicy, key) > 0; }

/// Why a policy cannot become `value`, from the options that the run began with: what acts on a step is set up at the
/// start. Empty if it can.
std::string why_fixed(std::string_view key, std::string_view value, const Options& start) {
  const ranks::Policy policy = ranks::policy_of(start);
  const bool watches_steps = policy.on_nonfinite == NonfinitePolicy::watch;
  const bool keeps_snapshots =
      start.snapshot_every > 0 || start.snapshot_seconds > 0 || policy.rolls_back();
  if (start.world_size > 1 && start.ranks != RankAgreement::agree)
    return "the ranks of this run do not agree on steps (ranks: agree)";
  if ((key == "on_nonfinite" && watches_steps) || !policy.acts())
    return "this run began with watch";
  if (value == "rollback" && !keeps_snapshots) return "this run keeps no snapshots";
  if (key == "skip_norm" && start.skip_norm == 0) return "it was 0 at the start";
  return {};
}

}  // namespace

bool may_change(std::string_view key) noexcept {
  return std::ranges::count(kMayChange, key) > 0 || is_policy(key);
}

ConfigFile::ConfigFile(const ResolvedOptions& resolved, std::vector<record::Setting> shown)
    : start_(resolved.options), resolved_(resolved), asked_for_(resolved.settings) {
  // A pipe, say, was read once, and cannot be read again.
  if (const exporters::FileStamp now = stamp(); now.is_there && now.size < 0) read_ = seen_ = now;
  resolved_.settings = std::move(shown);
}

exporters::FileStamp ConfigFile::stamp() const noexcept {
  return exporters::stamp_of(resolved_.config_path);
}

std::optional<ConfigChange> ConfigFile::look(double now) {
  if (!resolved_.again) return std::nullopt;
  const exporters::FileStamp found = stamp();
  if (found == read_) {
    seen_ = found;
    return std::nullopt;
  }
  if (found != std::exchange(seen_, found)) return std::nullopt;
  read_ = found;
  ConfigChange change = read(now);
  if (change.lines.empty()) return std::nullopt;  // another file of the same content
  return change;
}

/// Empty if it may be opened: a pipe would be waited for.
std::string ConfigFile::why_unreadable() const {
  if (!read_.is_there) return "is gone";
  if (read_.size < 0) return "is no file";
  return read_.size > kLargestFile ? "is larger than a megabyte" : "";
}

ConfigChange ConfigFile::read(double now) {
  ConfigChange change;
  const std::string stays = "; all options stay as they are";
  if (const std::string why = why_unreadable(); !why.empty()) {
    change.lines.push_back("config: '" + resolved_.config_path + "' " + why + stays);
    return change;
  }
  std::vector<record::Setting> asked_for;
  try {
    asked_for = resolved_.again().settings;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    change.lines.push_back(error.what() + stays);
    return change;
  }
  for (std::size_t i = 0; i < asked_for.size(); ++i) {
    const record::Setting& wanted = asked_for[i];
    if (wanted.value == std::exchange(asked_for_[i], wanted).value) continue;
    record::Setting& held = resolved_.settings[i];
    if (wanted.value == held.value) continue;
    std::string why;
    if (is_policy(wanted.key)) {
      if (has_policy_of_ranks()) continue;
      why = why_fixed(wanted.key, wanted.value, start_);
    }
    if (!why.empty() || !may_change(wanted.key)) {
      change.lines.push_back("config: " + wanted.key + " cannot change while the run lasts" +
                             (why.empty() ? "" : ", as ") + why + "; it will at the next start");
      continue;
    }
    change.lines.push_back(line(wanted.key, wanted.value, held.value));
    hold(held, wanted, now);
    change.has_changed = true;
  }
  change.options = resolved_.options;
  change.settings = resolved_.settings;
  return change;
}

void ConfigFile::hold(record::Setting& held, const record::Setting& wanted, double now) {
  held = wanted;
  held.since = now;
  (void)find_option(wanted.key)->set(resolved_.options, wanted.value);
}

/// Ranks that agree act alike, whatever their own files say and whenever these change.
bool ConfigFile::has_policy_of_ranks() const noexcept {
  return start_.world_size > 1 && start_.ranks == RankAgreement::agree && start_.rank > 0;
}

ConfigChange ConfigFile::follow(const ranks::Policy& policy, double now) {
  Options theirs = resolved_.options;
  ranks::set_policy(theirs, policy);
  ConfigChange change;
  for (record::Setting& held : resolved_.settings) {
    if (!is_policy(held.key)) continue;
    const record::Setting wanted{held.key, find_option(held.key)->get(theirs), "rank 0"};
    if (wanted.value == held.value) continue;
    change.lines.push_back(line(held.key, wanted.value, held.value, ", as on rank 0"));
    hold(held, wanted, now);
    change.has_changed = true;
  }
  change.options = resolved_.options;
  change.settings = resolved_.settings;
  return change;
}

}  // namespace gradvane::agent
