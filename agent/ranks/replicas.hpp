#pragma once
// Finds out whether ranks that had the same weights still have them, and which parameter differs.
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "agent/ranks/rank_record.hpp"

namespace gradvane::agent::ranks {

/// Parameters of one optimizer, by their order.
struct ParamRange {
  std::int32_t begin = 0;
  std::int32_t end = std::numeric_limits<std::int32_t>::max();

  bool operator==(const ParamRange&) const = default;
};

/// Each comparison is part of an exchange, so a record has room for one fingerprint. If whole models differ,
/// the next exchanges compare halves, until one parameter is left. Ranks are replicas of each other if the first
/// comparison found them equal: stages of a pipeline never are. After the same records this is the same on every
/// rank.
class Replicas {
 public:
  struct Finding {
    bool differ = false;
    std::optional<std::int32_t> param;  ///< by its order; absent: it is not known
    std::int32_t rank = 0;
    std::vector<std::int32_t> others;  ///< ranks that differ from `rank`
    std::int64_t equal_at = 0;         ///< run step of the latest comparison that found them equal
  };

  /// `every`: exchanges of an optimizer from one comparison to the next; 0: none.
  explicit Replicas(int every) noexcept : every_(every) {}

  [[nodiscard]] bool is_on() const noexcept { return every_ > 0; }

  /// What the next record of this optimizer is to have a fingerprint of. Absent: nothing.
  [[nodiscard]] std::optional<ParamRange> wanted(int optimizer) const noexcept;

  /// Call it once for each exchange, with the records of all ranks, or with none where nothing was wanted. Absent:
  /// there is no news.
  [[nodiscard]] std::optional<Finding> compare(int optimizer, std::span<const RankRecord> all);

 private:
  struct Search {
    std::int64_t exchanges = 0;
    std::vector<std::int32_t>
        like;  ///< for each rank, the lowest that it is a replica of; empty: not known yet
    std::optional<ParamRange> within;  ///< where the difference is, while it is looked for
    Finding seen{};                    ///< with `within`: what began the search
    std::int64_t equal_at = 0;         ///< as in Finding
    bool is_apart = false;             ///< it was reported
  };

  [[nodiscard]] static ParamRange lower_half(const ParamRange& range) noexcept;
  [[nodiscard]] static std::optional<Finding> difference(const Search& search,
                                                         std::span<const RankRecord> all);

  [[nodiscard]] static std::optional<Finding> narrow(Search& search, const ParamRange& lower,
                                                     bool differs);

  int every_;
  std::vector<Search> by_optimizer_;
};

}  // namespace gradvane::agent::ranks
