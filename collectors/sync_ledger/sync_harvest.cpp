#include "collectors/sync_ledger/sync_harvest.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "record/names.hpp"

namespace gradvane::collectors {
namespace {

using record::SyncKind;
using record::SyncOrigin;

double seconds(std::int64_t nanoseconds) noexcept {
  return 1e-9 * static_cast<double>(nanoseconds);
}

void add_to(record::SyncTally& sum, const record::SyncTally& amount) noexcept {
  sum.calls += amount.calls;
  sum.seconds += amount.seconds;
}

bool is_wait_of_training(const SyncKey& key) noexcept {
  return key.origin == SyncOrigin::training && key.kind != SyncKind::rejected_in_capture;
}

template <typename T>
T shared(T& number, std::memory_order order = std::memory_order_relaxed) noexcept {
  return std::atomic_ref(number).load(order);
}

std::string_view base_name(std::string_view path) noexcept {
  return path.substr(path.rfind('/') + 1);
}

/// Short, and the same on every machine that runs the same code.
std::string short_path(const std::string& path) {
  for (const std::string_view root : {"/site-packages/", "/dist-packages/"}) {
    if (const auto at = path.rfind(root); at != std::string::npos)
      return path.substr(at + root.size());
  }
  std::array<char, 4096> directory{};
  if (::getcwd(directory.data(), directory.size()) != nullptr) {
    const std::string here = std::string(directory.data()) + '/';
    if (path.starts_with(here)) return path.substr(here.size());
  }
  return std::string(base_name(path));
}

struct Symbol {
  std::string library;
  std::string name;  ///< with the distance from its start; empty where there is none
};

Symbol symbol_at(std::uintptr_t address) {
  Dl_info found{};
  Symbol symbol;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a return address, as the stack has it
  if (::dladdr(reinterpret_cast<void*>(address), &found) == 0) return symbol;
  if (found.dli_fname != nullptr) symbol.library = base_name(found.dli_fname);
  if (found.dli_sname == nullptr) {
    std::array<char, 32> text{};
    const auto from_start = address - reinterpret_cast<std::uintptr_t>(found.dli_fbase);
    std::snprintf(text.data(), text.size(), "+0x%zx", static_cast<std::size_t>(from_start));
    symbol.name = text.data();
    return symbol;
  }
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &status), &std::free);
  symbol.name = plain ? plain.get() : found.dli_sname;
  return symbol;
}

}  // namespace

void SyncHarvest::drain(std::uint64_t epoch) {
  std::int64_t dropped = retired_drops_[index_of(record::SyncDrop::events)];
  tables_.for_each([&](ThreadTable& table) {
    drain(table);
    dropped += shared(table.dropped[index_of(record::SyncDrop::events)]);
  });
  if (dropped != events_dropped_) {
    if (!lossy_.empty() && lossy_.back().to >= drained_to_)
      lossy_.back().to = epoch;
    else
      lossy_.push_back({drained_to_, epoch});
    if (lossy_.size() > kKnownLosses) {  // the two oldest become one
      lossy_[1].from = lossy_[0].from;
      lossy_.pop_front();
    }
    events_dropped_ = dropped;
  }
  drained_to_ = epoch;
  while (epochs_.size() > kKnownEpochs) epochs_.erase(epochs_.begin());
}

/// Seldom needed, and a system call for each thread.
void SyncHarvest::reclaim() {
  if (tables_.most_used() <= TablePool::kTables / 2) return;
  tables_.take_back([&](ThreadTable& table) {
    table.settle_copy();
    drain(table);
    retire(table);
  });
}

void SyncHarvest::drain(ThreadTable& table) {
  const std::uint64_t written = shared(table.events_written, std::memory_order_acquire);
  std::uint64_t read = table.events_read;
  for (; read < written; ++read) {
    const SyncEvent& event = table.events[read % ThreadTable::kEvents];
    add(epochs_[event.epoch], {key_in(table, event.cell), 1, event.nanoseconds, event.nanoseconds});
  }
  std::atomic_ref(table.events_read).store(read, std::memory_order_release);
}

SyncKey SyncHarvest::key_in(const ThreadTable& table, std::uint32_t cell) noexcept {
  if (cell >= ThreadTable::kOtherCells) return table.cells[cell].key;
  const std::uint32_t above = cell / record::kSyncKinds;
  return {kOtherPlace, static_cast<SyncKind>(cell % record::kSyncKinds),
          static_cast<SyncOrigin>(above % record::kSyncOrigins), kNoPhase,
          static_cast<record::SyncPart>(above / record::kSyncOrigins)};
}

void SyncHarvest::add(std::vector<Tally>& tallies, const Tally& tally) {
  auto known = std::ranges::find(tallies, tally.key, &Tally::key);
  if (known == tallies.end()) known = tallies.insert(tallies.end(), Tally{tally.key});
  known->calls += tally.calls;
  known->nanoseconds += tally.nanoseconds;
  known->longest = std::max(known->longest, tally.longest);
}

/// Those that ever counted.
template <typename Take>
void SyncHarvest::for_each_tally(ThreadTable& table, Take take) {
  const std::uint32_t cells =
      ThreadTable::kOtherCells + shared(table.cells_used, std::memory_order_acquire);
  for (std::uint32_t i = 0; i < cells; ++i) {
    SyncCell& cell = table.cells[i];
    const Tally tally{key_in(table, i), shared(cell.calls), shared(cell.nanoseconds),
                      shared(cell.longest)};
    if (tally.calls > 0) take(tally);
  }
}

/// Its thread is gone: what it counted stays.
void SyncHarvest::retire(ThreadTable& table) {
  for_each_tally(table, [&](const Tally& tally) { add(retired_, tally); });
  for (std::size_t i = 0; i < retired_drops_.size(); ++i)
    retired_drops_[i] += shared(table.dropped[i]);
  for (std::size_t i = 0; i < retired_polls_.size(); ++i) {
    retired_polls_[i].calls += shared(table.polls[i]);
    retired_polls_[i].seconds += seconds(shared(table.poll_nanoseconds[i]));
  }
}

/// Of steps that have ended. A copy that its thread has made no call since is one of them.
SyncHarvest::Epoch SyncHarvest::tallies_between(std::uint64_t begin, std::uint64_t end) {
  Epoch tallies;
  for (auto at = epochs_.upper_bound(begin); at != epochs_.end() && at->first <= end; ++at)
    for (const Tally& tally : at->second) add(tallies, tally);
  tables_.for_each([&](ThreadTable& table) {
    const auto copy = table.pending_copy();
    if (copy && copy->epoch > begin && copy->epoch <= end &&
        copy->key.part == record::SyncPart::in_steps)
      add(tallies, {copy->key, 1, copy->nanoseconds, copy->nanoseconds});
  });
  return tallies;
}

bool SyncHarvest::step(std::uint64_t begin, std::uint64_t end, record::StepSyncs& syncs) {
  syncs = {};
  const bool is_lossy = std::ranges::any_of(
      lossy_, [&](const Stretch& stretch) { return stretch.from <= end && stretch.to > begin; });
  if (is_lossy || end > drained_to_ || end < begin) return false;
  // Epochs without a sync are in no table, so what is too old is known by its number alone.
  if (epochs_.size() == kKnownEpochs && begin < epochs_.begin()->first) return false;
  for (const Tally& tally : tallies_between(begin, end)) {
    const std::size_t origin = index_of(tally.key.origin);
    syncs.calls[origin][index_of(tally.key.kind)] += static_cast<std::int32_t>(tally.calls);
    if (tally.key.kind != SyncKind::rejected_in_capture)
      syncs.seconds[origin] += seconds(tally.nanoseconds);
  }
  return true;
}

std::vector<record::StepSyncSite> SyncHarvest::sites_of_step(std::uint64_t begin, std::uint64_t end,
                                                             SyncOrigin origin) {
  std::vector<record::StepSyncSite> sites;
  for (const Tally& tally : tallies_between(begin, end)) {
    if (tally.key.origin != origin || tally.key.kind == SyncKind::rejected_in_capture) continue;
    const std::string location = describe(tally.key).location;
    auto site = std::ranges::find_if(sites, [&](const record::StepSyncSite& known) {
      return known.kind == tally.key.kind && known.location == location;
    });
    if (site == sites.end())
      site = sites.insert(sites.end(), record::StepSyncSite{location, tally.key.kind, 0, 0});
    site->calls += static_cast<std::int32_t>(tally.calls);
    site->seconds += seconds(tally.nanoseconds);
  }
  std::ranges::stable_sort(sites, std::ranges::greater{}, &record::StepSyncSite::calls);
  return sites;
}

void SyncHarvest::summarise(record::SyncSummary& summary, std::uint64_t epoch,
                            std::int64_t settled) {
  reclaim();
  std::map<SiteName, std::size_t> known;
  for (const Tally& tally : retired_) add(summary, known, tally);
  summary.dropped = retired_drops_;
  summary.polls = retired_polls_;
  tables_.for_each([&](ThreadTable& table) {
    for_each_tally(table, [&](const Tally& tally) { add(summary, known, tally); });
    if (const auto copy = table.pending_copy(); copy && copy->since <= settled)
      add(summary, known, {copy->key, 1, copy->nanoseconds, copy->nanoseconds});
    for (std::size_t i = 0; i < summary.dropped.size(); ++i)
      summary.dropped[i] += shared(table.dropped[i]);
    for (std::size_t i = 0; i < summary.polls.size(); ++i) {
      summary.polls[i].calls += shared(table.polls[i]);
      summary.polls[i].seconds += seconds(shared(table.poll_nanoseconds[i]));
    }
  });
  summary.dropped[index_of(record::SyncDrop::threads)] += tables_.refused();
  // The step in progress may never end.
  if (const auto unended = epochs_.find(epoch); unended != epochs_.end())
    for (const Tally& tally : unended->second) take_out_of_steps(summary, known, tally);
  std::ranges::stable_sort(summary.sites, std::ranges::greater{},
                           [](const record::SyncSite& site) { return site.total.seconds; });
}

void SyncHarvest::add(record::SyncSummary& summary, std::map<SiteName, std::size_t>& known,
                      const Tally& tally) {
  const record::SyncTally amount{tally.calls, seconds(tally.nanoseconds)};
  add_to(summary.totals[index_of(tally.key.origin)][index_of(tally.key.kind)], amount);
  if (is_wait_of_training(tally.key)) {
    add_to(summary.parts[index_of(tally.key.part)], amount);
    if (tally.key.part == record::SyncPart::in_steps && tally.key.phase != kNoPhase)
      add_to(summary.by_phase[tally.key.phase], amount);
  }
  record::SyncSite& site = site_of(summary, known, tally.key);
  add_to(site.total, amount);
  if (tally.key.part == record::SyncPart::in_steps) add_to(site.in_steps, amount);
  site.max_seconds = std::max(site.max_seconds, seconds(tally.longest));
}

/// Of calls that were added as a step's.
void SyncHarvest::take_out_of_steps(record::SyncSummary& summary,
                                    std::map<SiteName, std::size_t>& known, const Tally& tally) {
  const record::SyncTally amount{-tally.calls, -seconds(tally.nanoseconds)};
  add_to(site_of(summary, known, tally.key).in_steps, amount);
  if (!is_wait_of_training(tally.key)) return;
  add_to(summary.parts[index_of(record::SyncPart::in_steps)], amount);
  add_to(summary.parts[index_of(record::SyncPart::between_steps)],
         {tally.calls, seconds(tally.nanoseconds)});
  if (tally.key.phase != kNoPhase) add_to(summary.by_phase[tally.key.phase], amount);
}

record::SyncSite& SyncHarvest::site_of(record::SyncSummary& summary,
                                       std::map<SiteName, std::size_t>& known, const SyncKey& key) {
  record::SyncSite site = describe(key);
  SiteName name(site.file.empty() ? site.location : site.file, site.line, site.function,
                static_cast<int>(site.kind), static_cast<int>(site.origin), key.phase);
  const auto [at, is_new] = known.emplace(name, summary.sites.size());
  if (is_new) {
    site.id = site_ids_.emplace(std::move(name), std::ssize(site_ids_) + 1).first->second;
    summary.sites.push_back(std::move(site));
  }
  return summary.sites[at->second];
}

record::SyncSite SyncHarvest::describe(const SyncKey& key) const {
  record::SyncSite site;
  if (const auto known = described_.find(key.place); known != described_.end()) {
    site = known->second;
  } else if (key.place == kGradvanePlace) {
    site.location = site.function = "gradvane";
  } else if (const Place* place = places_.find(key.place)) {
    site.thread = place->thread.data();
    const auto lines = static_cast<std::size_t>(place->lines);
    switch (place->from) {
      case Place::From::python:
        site.file = place->line[0].file.data();
        site.line = place->line[0].number;
        site.function = place->line[0].function.data();
        site.location = short_path(site.file) + ':' + std::to_string(site.line);
        for (std::size_t i = 1; i < lines; ++i)
          site.stack.push_back(std::string(place->line[i].file.data()) + ':' +
                               std::to_string(place->line[i].number) + ' ' +
                               place->line[i].function.data());
        break;
      case Place::From::scope:
        site.location = site.function = place->line[0].function.data();
        break;
      case Place::From::native:
        for (std::size_t i = 0; i < lines; ++i) {
          // A return address belongs to the call before it.
          const Symbol symbol = symbol_at(place->addresses[i] - 1);
          const std::string text = symbol.library + '!' + symbol.name;
          if (i > 0)
            site.stack.push_back(text);
          else
            site.location = text, site.function = symbol.name;
        }
        break;
      case Place::From::thread:
        site.location = "thread " + site.thread;
        break;
    }
    described_.emplace(key.place, site);
  } else {
    site.location = record::kOtherLocation;
  }
  site.kind = key.kind;
  site.origin = key.origin;
  if (key.phase != kNoPhase) site.phase = static_cast<record::Phase>(key.phase);
  return site;
}

}  // namespace gradvane::collectors
