#include "agent/ranks/agreement.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace gradvane::agent::ranks {
namespace {

std::string rank_text(std::size_t rank) { return "rank " + std::to_string(rank); }

/// Why the two ranks are not at the same exchange; empty if they are.
std::string difference(const RankRecord& first, const RankRecord& other, std::size_t rank) {
  const auto differ = [&](const char* what, auto here, auto there) {
    return rank_text(rank) + " is at " + what + " " + std::to_string(there) + ", rank 0 at " +
           std::to_string(here);
  };
  if (first.sequence != other.sequence) return differ("exchange", first.sequence, other.sequence);
  if (first.run_step != other.run_step) return differ("step", first.run_step, other.run_step);
  if (first.optimizer != other.optimizer)
    return differ("optimizer", first.optimizer, other.optimizer);
  return {};
}

std::optional<double> joint_norm(std::span<const RankRecord> all) {
  double squares = 0;
  double whole = 0;
  bool is_of_parts = false;
  for (const RankRecord& one : all) {
    if (!one.norm) return std::nullopt;
    is_of_parts |= one.is_part;
    squares += *one.norm * *one.norm;
    // A NaN is the largest of all.
    whole = std::isnan(*one.norm) || *one.norm > whole ? *one.norm : whole;
  }
  return is_of_parts ? std::sqrt(squares) : whole;
}

std::array<std::int64_t, kGenerations> common_snapshots(std::span<const RankRecord> all) {
  std::array<std::int64_t, kGenerations> common{};
  std::size_t count = 0;
  for (const std::int64_t step : all.front().snapshots) {
    const bool is_everywhere = std::ranges::all_of(all, [step](const RankRecord& one) {
      return std::ranges::find(one.snapshots, step) != one.snapshots.end();
    });
    if (step > 0 && is_everywhere) common[count++] = step;
  }
  std::ranges::sort(common, std::ranges::greater());
  return common;
}

}  // namespace

Outcome agree(std::span<const std::string> records) {
  std::vector<RankRecord> all;
  all.reserve(records.size());
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const auto read = decode(records[rank]);
    if (!read)
      return {{},
              rank_text(rank) +
                  " sent no record of the step: it stops, or has another version of gradvane"};
    if (!all.empty())
      if (std::string why = difference(all.front(), *read, rank); !why.empty())
        return {{}, std::move(why)};
    all.push_back(*read);
  }
  if (all.empty()) return {{}, "no rank has sent a record"};
  Agreement agreed;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const RankRecord& one = all[rank];
    // A gradient that was dropped or mended since has no part in the step.
    const bool own_gradient = one.own_bad && one.gradients_are_bad;
    if ((one.loss_is_bad || own_gradient) && !agreed.origin)
      agreed.origin =
          Origin{static_cast<std::int32_t>(rank), one.loss_is_bad, one.bad_micro_step, one.own_bad};
    agreed.loss_is_bad |= one.loss_is_bad;
    agreed.gradients_are_bad |= one.gradients_are_bad;
    if (!one.incident) continue;
    agreed.bad_since = agreed.incident ? std::min(agreed.bad_since, one.bad_since) : one.bad_since;
    if (!agreed.incident) agreed.incident = one.incident;
  }
  agreed.norm = joint_norm(all);
  agreed.snapshots = common_snapshots(all);
  agreed.policy = all.front().policy;
  return {agreed, {}};
}

std::string origin_of(const Agreement& agreed,
                      const std::function<std::string(std::int32_t)>& name_of) {
  if (!agreed.origin) return "which rank it came from is not known";
  const Origin& origin = *agreed.origin;
  std::string text = rank_text(static_cast<std::size_t>(origin.rank)) + " is the first whose own ";
  if (!origin.loss_is_bad && origin.own_gradient)
    return text + "gradient is not finite, of " + name_of(origin.own_gradient->param) +
           " at element " + std::to_string(origin.own_gradient->element);
  text += "loss is not finite";
  // Without gradient accumulation there is no other.
  if (origin.micro_step > 1) text += ", in micro-step " + std::to_string(origin.micro_step);
  return text;
}

}  // namespace gradvane::agent::ranks
