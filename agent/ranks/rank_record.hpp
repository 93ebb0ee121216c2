#pragma once
// What each rank tells the others of the step in hand: one record of fixed size.
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/ranks/policy.hpp"
#include "record/incident_classes.hpp"

namespace gradvane::agent::ranks {

inline constexpr std::size_t kRecordBytes = 112;
inline constexpr std::size_t kGenerations = 2;  ///< snapshots that a rank keeps

/// Of a gradient that is not finite.
struct BadElement {
  std::int32_t param = 0;    ///< by its order
  std::int64_t element = 0;  ///< the first one, as a row-major index

  auto operator<=>(const BadElement&) const = default;
};

struct RankRecord {
  std::uint64_t sequence = 0;  ///< of this exchange, from 1: ranks that miss one are found by it
  std::int64_t run_step = 0;
  std::int32_t optimizer = 0;
  bool loss_is_bad = false;  ///< this rank's own, before anything was reduced
  /// The first micro-step whose own loss was bad, from 1; 0: not known.
  std::int64_t bad_micro_step = 0;
  bool gradients_are_bad = false;
  /// In the first parameter whose gradient was bad on this rank before ranks averaged it. Absent:
  /// none was, or it was not looked at.
  std::optional<BadElement> own_bad = std::nullopt;
  bool has_scaler = false;
  /// L2 norm of the gradients that this rank holds. Absent where it is not known.
  std::optional<double> norm = std::nullopt;
  bool is_part =
      false;  ///< the norm is of this rank's shards, replicas counted once over all ranks
  /// One that a policy is to act on, and the first run step that was bad.
  std::optional<record::IncidentClass> incident = std::nullopt;
  std::int64_t bad_since = 0;
  /// Run steps of the good snapshots, the newest first; 0: none.
  std::array<std::int64_t, kGenerations> snapshots{};
  std::int32_t params = 0;  ///< that the optimizer updates
  /// Of some of their values, before the update. Absent where it is not asked for, or the values
  /// cannot be read.
  std::optional<std::uint64_t> fingerprint = std::nullopt;
  /// Which this rank has, or wants from the next step on.
  std::optional<Policy> policy = std::nullopt;

  bool operator==(const RankRecord&) const = default;
};

/// Little-endian, with the version of the format. Ranks of other versions do not understand each other.
[[nodiscard]] std::array<char, kRecordBytes> encode(const RankRecord& record) noexcept;

/// Absent unless `bytes` are a record of this version, whatever they are.
[[nodiscard]] std::optional<RankRecord> decode(std::string_view bytes) noexcept;

}  // namespace gradvane::agent::ranks
