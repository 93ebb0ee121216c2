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
constexpr std::int64_t kLargestFile = std::int64_t{1} << 20;

std::string shown(const std::string& value) { return value.empty() ? "empty" : value; }

}  // namespace

bool may_change(std::string_view key) noexcept { return std::ranges::count(kMayChange, key) > 0; }

ConfigFile::ConfigFile(const ResolvedOptions& resolved, std::vector<record::Setting> shown)
    : resolved_(resolved), asked_for_(resolved.settings) {
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
    if (!may_change(wanted.key)) {
      change.lines.push_back("config: " + wanted.key +
                             " cannot change while the run lasts; it will at the next start");
      continue;
    }
    change.lines.push_back("config: " + wanted.key + " is " + shown(wanted.value) +
                           " from now on; it was " + shown(held.value));
    held = wanted;
    held.since = now;
    (void)find_option(wanted.key)->set(resolved_.options, wanted.value);
    change.has_changed = true;
  }
  change.options = resolved_.options;
  change.settings = resolved_.settings;
  return change;
}

}  // namespace gradvane::agent
