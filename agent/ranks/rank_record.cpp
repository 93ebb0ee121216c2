#include "agent/ranks/rank_record.hpp"

#include <bit>
#include <cstring>
#include <type_traits>

namespace gradvane::agent::ranks {
namespace {

constexpr std::uint32_t kMagic = 0x56475234;  // changes with the layout
constexpr std::int32_t kNoIncident = -1;
constexpr std::int32_t kNoParam = -1;

using Flag = std::uint32_t;
constexpr Flag kLossIsBad = 1;
constexpr Flag kGradientsAreBad = 2;
constexpr Flag kHasScaler = 4;
constexpr Flag kHasNorm = 8;
constexpr Flag kIsPart = 16;
constexpr Flag kHasFingerprint = 32;
constexpr Flag kHasPolicy = 64;
constexpr Flag kAllFlags = 127;
constexpr std::uint32_t kDivergenceShift = 8;  // of the two policies in one number

/// As they are sent.
struct Fields {
  std::uint32_t magic = kMagic;
  std::uint32_t flags = 0;
  std::uint64_t sequence = 0;
  std::int64_t run_step = 0;
  std::int32_t optimizer = 0;
  std::int32_t incident = kNoIncident;
  std::uint64_t norm_bits = 0;
  std::int64_t bad_since = 0;
  std::int64_t newest = 0;
  std::int64_t older = 0;
  std::uint64_t fingerprint = 0;
  std::int32_t params = 0;
  std::int32_t own_bad_param = kNoParam;
  std::uint32_t policies = 0;
  std::int32_t skip_limit = 0;
  std::uint64_t skip_norm_bits = 0;
  std::int64_t bad_micro_step = 0;
  std::int64_t own_bad_element = 0;
};

static_assert(std::endian::native == std::endian::little);
static_assert(std::has_unique_object_representations_v<Fields> && sizeof(Fields) <= kRecordBytes);

/// A number that came from elsewhere may be none of an enum's.
bool is_allowed(const Policy& policy) noexcept {
  return policy.on_nonfinite <= NonfinitePolicy::rollback &&
         policy.on_divergence <= DivergencePolicy::rollback && policy.skip_limit >= 1 &&
         policy.skip_norm >= 0;
}

std::uint32_t flag(bool is_set, Flag flag) noexcept { return is_set ? flag : 0U; }

}  // namespace

std::array<char, kRecordBytes> encode(const RankRecord& record) noexcept {
  Fields fields;
  fields.flags =
      flag(record.loss_is_bad, kLossIsBad) | flag(record.gradients_are_bad, kGradientsAreBad) |
      flag(record.has_scaler, kHasScaler) | flag(record.norm.has_value(), kHasNorm) |
      flag(record.is_part, kIsPart) | flag(record.fingerprint.has_value(), kHasFingerprint) |
      flag(record.policy.has_value(), kHasPolicy);
  fields.sequence = record.sequence;
  fields.run_step = record.run_step;
  fields.optimizer = record.optimizer;
  if (record.incident) fields.incident = static_cast<std::int32_t>(*record.incident);
  if (record.norm) fields.norm_bits = std::bit_cast<std::uint64_t>(*record.norm);
  fields.bad_since = record.bad_since;
  fields.newest = record.snapshots[0];
  fields.older = record.snapshots[1];
  fields.fingerprint = record.fingerprint.value_or(0);
  fields.params = record.params;
  if (record.own_bad) {
    fields.own_bad_param = record.own_bad->param;
    fields.own_bad_element = record.own_bad->element;
  }
  fields.bad_micro_step = record.bad_micro_step;
  if (record.policy) {
    fields.policies = static_cast<std::uint32_t>(record.policy->on_nonfinite) |
                      static_cast<std::uint32_t>(record.policy->on_divergence) << kDivergenceShift;
    fields.skip_limit = record.policy->skip_limit;
    fields.skip_norm_bits = std::bit_cast<std::uint64_t>(record.policy->skip_norm);
  }
  std::array<char, kRecordBytes> bytes{};
  std::memcpy(bytes.data(), &fields, sizeof(fields));
  return bytes;
}

std::optional<RankRecord> decode(std::string_view bytes) noexcept {
  if (bytes.size() != kRecordBytes) return std::nullopt;
  Fields fields;
  std::memcpy(&fields, bytes.data(), sizeof(fields));
  const auto classes = static_cast<std::int32_t>(record::kIncidentClasses);
  if (fields.magic != kMagic || (fields.flags & ~kAllFlags) != 0 || fields.incident < kNoIncident ||
      fields.incident >= classes || fields.params < 0 || fields.own_bad_param < kNoParam ||
      fields.own_bad_element < 0 || fields.bad_micro_step < 0)
    return std::nullopt;
  const auto has = [&](Flag flag) { return (fields.flags & flag) != 0; };
  const Policy policy{static_cast<NonfinitePolicy>(fields.policies & 0xFF),
                      static_cast<DivergencePolicy>(fields.policies >> kDivergenceShift & 0xFF),
                      fields.skip_limit, std::bit_cast<double>(fields.skip_norm_bits)};
  if (has(kHasPolicy) && !is_allowed(policy)) return std::nullopt;
  RankRecord record;
  record.sequence = fields.sequence;
  record.run_step = fields.run_step;
  record.optimizer = fields.optimizer;
  record.loss_is_bad = has(kLossIsBad);
  record.gradients_are_bad = has(kGradientsAreBad);
  record.has_scaler = has(kHasScaler);
  if (has(kHasNorm)) record.norm = std::bit_cast<double>(fields.norm_bits);
  record.is_part = has(kIsPart);
  if (fields.incident != kNoIncident)
    record.incident = static_cast<record::IncidentClass>(fields.incident);
  record.bad_since = fields.bad_since;
  record.snapshots = {fields.newest, fields.older};
  record.params = fields.params;
  if (fields.own_bad_param != kNoParam)
    record.own_bad = BadElement{fields.own_bad_param, fields.own_bad_element};
  record.bad_micro_step = fields.bad_micro_step;
  if (has(kHasFingerprint)) record.fingerprint = fields.fingerprint;
  if (has(kHasPolicy)) record.policy = policy;
  return record;
}

}  // namespace gradvane::agent::ranks
