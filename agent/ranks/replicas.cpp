#include "agent/ranks/replicas.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace gradvane::agent::ranks {
namespace {

/// For each rank, the lowest one with the same parameters and fingerprint.
std::vector<std::int32_t> likeness(std::span<const RankRecord> all) {
  std::vector<std::int32_t> like;
  for (const RankRecord& one : all) {
    const auto first = std::ranges::find_if(all, [&](const RankRecord& other) {
      return other.params == one.params && other.fingerprint == one.fingerprint;
    });
    like.push_back(static_cast<std::int32_t>(first - all.begin()));
  }
  return like;
}

}  // namespace

ParamRange Replicas::lower_half(const ParamRange& range) noexcept {
  return {range.begin, range.begin + std::max(1, (range.end - range.begin) / 2)};
}

std::optional<ParamRange> Replicas::wanted(int optimizer) const noexcept {
  if (every_ <= 0) return std::nullopt;
  const auto index = static_cast<std::size_t>(optimizer);
  if (index >= by_optimizer_.size()) return ParamRange{};
  const Search& search = by_optimizer_[index];
  if (search.within) return lower_half(*search.within);
  return search.exchanges % every_ == 0 ? std::optional(ParamRange{}) : std::nullopt;
}

std::optional<Replicas::Finding> Replicas::compare(int optimizer, std::span<const RankRecord> all) {
  const auto range = wanted(optimizer);
  if (every_ <= 0) return std::nullopt;
  const auto index = static_cast<std::size_t>(optimizer);
  if (index >= by_optimizer_.size()) by_optimizer_.resize(index + 1);
  Search& search = by_optimizer_[index];
  ++search.exchanges;
  const bool is_compared =
      range && !all.empty() &&
      std::ranges::all_of(all, [](const RankRecord& one) { return one.fingerprint.has_value(); });
  if (!is_compared) {
    search.within.reset();
    return std::nullopt;
  }
  if (search.like.size() != all.size()) {
    search.like = likeness(all);
    search.equal_at = all.front().run_step;
    return std::nullopt;
  }
  std::optional<Finding> found = difference(search, all);
  if (search.within) return narrow(search, *range, found.has_value());
  if (!found) {
    search.equal_at = all.front().run_step;
    return std::exchange(search.is_apart, false) ? std::optional(Finding{}) : std::nullopt;
  }
  if (search.is_apart) return std::nullopt;
  search.within = ParamRange{0, std::max(1, std::ranges::max(all, {}, &RankRecord::params).params)};
  search.seen = *std::move(found);
  search.seen.equal_at = search.equal_at;
  return std::nullopt;
}

/// The lower half of where the difference may be has been compared.
std::optional<Replicas::Finding> Replicas::narrow(Search& search, const ParamRange& lower,
                                                  bool differs) {
  if (differs)
    search.within->end = lower.end;
  else
    search.within->begin = lower.end;
  const std::int32_t left = search.within->end - search.within->begin;
  if (left > (differs ? 1 : 0)) return std::nullopt;
  // One parameter is left, and differs. Or none is left: meanwhile the difference has gone.
  if (left == 1) search.seen.param = search.within->begin;
  search.within.reset();
  search.is_apart = true;
  return std::exchange(search.seen, {});
}

std::optional<Replicas::Finding> Replicas::difference(const Search& search,
                                                      std::span<const RankRecord> all) {
  Finding finding{.differ = true, .param = {}, .rank = 0, .others = {}};
  for (std::size_t rank = 0; rank < all.size() && finding.others.empty(); ++rank) {
    if (search.like[rank] != static_cast<std::int32_t>(rank)) continue;
    finding.rank = static_cast<std::int32_t>(rank);
    for (std::size_t other = rank + 1; other < all.size(); ++other)
      if (search.like[other] == finding.rank && all[other].fingerprint != all[rank].fingerprint)
        finding.others.push_back(static_cast<std::int32_t>(other));
  }
  return finding.others.empty() ? std::nullopt : std::optional(finding);
}

}  // namespace gradvane::agent::ranks
