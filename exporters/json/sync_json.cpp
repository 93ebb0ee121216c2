#include "exporters/json/sync_json.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exporters/json/record_json.hpp"
#include "record/names.hpp"

namespace gradvane::exporters {

using Json = nlohmann::ordered_json;
using record::SyncOrigin;
using record::SyncSite;
using record::SyncSummary;
using record::SyncTally;

namespace {

Json tally_json(const SyncTally& tally) {
  return {{"calls", tally.calls}, {"seconds", to_json(tally.seconds)}};
}

bool is_any(const SyncTally& tally) { return tally.calls > 0 || tally.seconds > 0; }

Json totals_json(const SyncSummary& syncs) {
  Json totals = Json::object();
  for (std::size_t origin = 0; origin < record::kSyncOrigins; ++origin) {
    Json kinds = Json::object();
    for (std::size_t kind = 0; kind < record::kSyncKinds; ++kind) {
      const SyncTally& tally = syncs.totals[origin][kind];
      if (is_any(tally))
        kinds[std::string(record::kNames<record::SyncKind>[kind])] = tally_json(tally);
    }
    totals[std::string(record::kNames<record::SyncOrigin>[origin])] = std::move(kinds);
  }
  return totals;
}

template <std::size_t n, std::size_t m>
Json tallies_json(const std::array<SyncTally, n>& tallies,
                  const std::array<std::string_view, m>& names) {
  static_assert(n <= m);
  Json json = Json::object();
  for (std::size_t i = 0; i < n; ++i) json[std::string(names[i])] = tally_json(tallies[i]);
  return json;
}

/// The chosen sites, most time first.
std::vector<const SyncSite*> choose_sites(const SyncSummary& syncs, const SyncChoice& choice) {
  std::vector<const SyncSite*> sites;
  for (const SyncSite& site : syncs.sites) {
    if (!choice.origin || site.origin == *choice.origin) sites.push_back(&site);
  }
  // Of the same time the older one first, so that a list does not change without a reason.
  std::ranges::sort(sites, {}, [](const SyncSite* site) {
    const double seconds = site->total.seconds;
    return std::pair(std::isnan(seconds) ? 0 : -seconds, site->id);
  });
  if (sites.size() > choice.limit) sites.resize(choice.limit);
  return sites;
}

/// Of those in steps, per step that was counted from end to end; absent before the first.
std::optional<double> calls_per_step(const SyncSummary& syncs, const SyncSite& site) {
  if (syncs.whole_steps <= 0) return std::nullopt;
  return static_cast<double>(site.in_steps.calls) / static_cast<double>(syncs.whole_steps);
}

Json site_json(const SyncSummary& syncs, const SyncSite& site) {
  Json json{{"id", site.id}, {"kind", name_of(site.kind)}, {"origin", name_of(site.origin)}};
  if (site.phase) json["phase"] = name_of(*site.phase);
  json["location"] = site.location;
  if (!site.file.empty()) json["file"] = site.file;
  if (site.line > 0) json["line"] = site.line;
  if (!site.function.empty()) json["function"] = site.function;
  json["stack"] = site.stack;
  json["thread"] = site.thread;
  json["calls"] = site.total.calls;
  json["calls_in_steps"] = site.in_steps.calls;
  put(json, "calls_per_step", calls_per_step(syncs, site));
  json["seconds"] = to_json(site.total.seconds);
  json["max_seconds"] = to_json(site.max_seconds);
  return json;
}

}  // namespace

Json to_json(const SyncSummary& syncs, const SyncChoice& choice) {
  Json json{{"source", name_of(syncs.source)}, {"reason", name_of(syncs.reason)}};
  if (!syncs.detail.empty()) json["detail"] = syncs.detail;
  json["covered_seconds"] = to_json(syncs.covered_seconds);
  json["blind_seconds"] = to_json(syncs.blind_seconds);
  json["gaps"] = syncs.gaps;
  json["steps"] = syncs.steps;
  json["whole_steps"] = syncs.whole_steps;
  if (syncs.budget) json["budget"] = *syncs.budget;
  json["own_budget"] = syncs.own_budget;
  json["steps_over"] = Json::object();
  for (const SyncOrigin origin : {SyncOrigin::training, SyncOrigin::gradvane}) {
    json["steps_over"][std::string(name_of(origin))] = syncs.steps_over[index_of(origin)];
  }
  json["steps_uncounted"] = syncs.steps_uncounted;
  if (syncs.most_in_step_at > 0) {
    json["most_in_step"] = {{"calls", syncs.most_in_step}, {"run_step", syncs.most_in_step_at}};
  }
  json["dropped"] = Json::object();
  for (std::size_t i = 0; i < record::kSyncDrops; ++i) {
    json["dropped"][std::string(record::kNames<record::SyncDrop>[i])] = syncs.dropped[i];
  }
  if (!syncs.has_counted()) return json;
  json["totals"] = totals_json(syncs);
  json["parts"] = tallies_json(syncs.parts, record::kNames<record::SyncPart>);
  json["by_phase"] = tallies_json(syncs.by_phase, record::kNames<record::Phase>);
  json["polls"] = Json::object();
  // A poll has no place, so nobody can tell those of a profiler from the others.
  for (const SyncOrigin origin : {SyncOrigin::training, SyncOrigin::gradvane}) {
    json["polls"][std::string(name_of(origin))] = tally_json(syncs.polls[index_of(origin)]);
  }
  json["sites"] = Json::array();
  for (const SyncSite* site : choose_sites(syncs, choice)) {
    json["sites"].push_back(site_json(syncs, *site));
  }
  return json;
}

Json to_json(const SyncSummary& syncs, const record::RunInfo& run, const SyncChoice& choice) {
  Json json{{"run", run.run}, {"rank", run.rank}};
  json.update(to_json(syncs, choice));
  return json;
}

}  // namespace gradvane::exporters
