// StepDetail as columns: with ten thousand parameters a step, the layout decides about size and time.
#include <algorithm>
#include <limits>

#include "exporters/recording/codec.hpp"
#include "exporters/recording/columns.hpp"
#include "record/numbers.hpp"

namespace gradvane::exporters::recording {

using record::GroupStats;
using record::ParamStats;
using record::TensorNumbers;

namespace {

// Ids of the detail's own fields.
constexpr std::uint32_t kGroupCount = 1;
constexpr std::uint32_t kGroups = 2;
constexpr std::uint32_t kParamCount = 3;
constexpr std::uint32_t kStates = 4;
constexpr std::uint32_t kHasGrad = 5;
constexpr std::uint32_t kGrads = 6;
constexpr std::uint32_t kHasWeight = 7;
constexpr std::uint32_t kWeights = 8;
constexpr std::uint32_t kUpdateRatios = 9;
// Of a group, the first of its counts: site by site, kind by kind, with room for kinds to come.
constexpr std::uint32_t kGroupNonfinite = 16;
constexpr std::uint32_t kKindsOfSite = 8;

constexpr std::uint32_t nonfinite_id(std::size_t site, std::size_t kind) {
  return kGroupNonfinite + static_cast<std::uint32_t>(site) * kKindsOfSite +
         static_cast<std::uint32_t>(kind);
}

/// `visit` is handed each column: its id, its member, and the usual value of a whole one.
template <typename Wholes, typename Reals>
void each_number(Wholes wholes, Reals reals) {
  const auto nonfinite = [](std::size_t kind) {
    return [kind](auto& n) -> auto& { return n.nonfinite[kind]; };
  };
  wholes(1, [](auto& n) -> auto& { return n.numel; }, 0);
  wholes(2, [](auto& n) -> auto& { return n.zero; }, 0);
  wholes(3, [](auto& n) -> auto& { return n.subnormal; }, 0);
  wholes(4, nonfinite(0), 0);
  wholes(5, nonfinite(1), 0);
  wholes(6, nonfinite(2), 0);
  wholes(7, [](auto& n) -> auto& { return n.first_nonfinite; }, -1);
  for (const record::TensorColumn& column : record::kTensorColumns)
    reals(column.recording_id, [&](auto& n) -> auto& { return n.*column.value; });
}
static_assert(record::kNonfiniteKinds == 3, "a kind of non-finite value needs a column of its own");
static_assert(record::kSites <= 6 && record::kNonfiniteKinds <= static_cast<int>(kKindsOfSite));

/// A group's numbers in the order of their ids, as columns have to be.
constexpr auto kGroupNumbers = [] {
  auto numbers = record::kTensorNumbers;
  std::ranges::sort(numbers, {}, &record::TensorNumber::recording_id);
  return numbers;
}();

template <typename Write>
void message(std::string& out, std::uint32_t id, Write write) {
  append_key(out, id, WireKind::bytes);
  const std::size_t at = out.size();
  append_u32(out, 0);
  write();
  put_u32(out, at, static_cast<std::uint32_t>(out.size() - at - 4));
}

void write_groups(std::string& out, const std::vector<GroupStats>& groups) {
  ColumnWriter columns(out);
  // Always there (nobody has -1): so a file that claims many groups has to be as long.
  columns.wholes(1, groups, [](const GroupStats& g) { return std::int64_t{g.params}; }, -1);
  for (const record::TensorNumber& number : kGroupNumbers)
    columns.optional_reals(number.recording_id, groups,
                           [&](const GroupStats& g) { return g.*number.group; });
  for (std::size_t site = 0; site < record::kSites; ++site)
    for (std::size_t kind = 0; kind < record::kNonfiniteKinds; ++kind)
      columns.wholes(
          nonfinite_id(site, kind), groups,
          [&](const GroupStats& g) { return g.nonfinite[site][kind]; }, 0);
}

bool read_groups(std::string_view bytes, std::vector<GroupStats>& groups) {
  ColumnReader columns(bytes);
  columns.wholes(1, groups, [](GroupStats& g, std::int64_t value) {
    g.params = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(value, 0, std::numeric_limits<std::int32_t>::max()));
  });
  for (const record::TensorNumber& number : kGroupNumbers)
    columns.optional_reals(number.recording_id, groups,
                           [&](GroupStats& g, double value) { g.*number.group = value; });
  for (std::size_t site = 0; site < record::kSites; ++site)
    for (std::size_t kind = 0; kind < record::kNonfiniteKinds; ++kind)
      columns.wholes(nonfinite_id(site, kind), groups,
                     [&](GroupStats& g, std::int64_t value) { g.nonfinite[site][kind] = value; });
  return columns.ok();
}

/// `has`, of those parameters that have it.
template <std::optional<TensorNumbers> ParamStats::* has>
void write_numbers(std::string& out, std::uint32_t presence_id, std::uint32_t id,
                   const std::vector<ParamStats>& params) {
  std::vector<const TensorNumbers*> rows;
  rows.reserve(params.size());
  for (const ParamStats& param : params)
    if (param.*has) rows.push_back(&*(param.*has));
  if (rows.empty()) return;
  ColumnWriter(out).presence(presence_id, params,
                             [](const ParamStats& p) { return (p.*has).has_value(); });
  message(out, id, [&] {
    ColumnWriter columns(out);
    each_number(
        [&](std::uint32_t column, auto get, std::int64_t usual) {
          columns.wholes(column, rows, [&](const TensorNumbers* n) { return get(*n); }, usual);
        },
        [&](std::uint32_t column, auto get) {
          columns.reals(column, rows, [&](const TensorNumbers* n) { return get(*n); });
        });
  });
}

template <std::optional<TensorNumbers> ParamStats::* has>
bool read_numbers(ColumnReader& from, std::uint32_t presence_id, std::uint32_t id,
                  std::vector<ParamStats>& params) {
  const auto bytes = from.find(id);
  if (!bytes) return true;
  std::vector<TensorNumbers*> rows;
  from.presence(presence_id, params, [&](ParamStats& p) { rows.push_back(&(p.*has).emplace()); });
  ColumnReader columns(*bytes);
  each_number(
      [&](std::uint32_t column, auto get, std::int64_t /*usual*/) {
        columns.wholes(column, rows,
                       [&](TensorNumbers* n, std::int64_t value) { get(*n) = value; });
      },
      [&](std::uint32_t column, auto get) {
        columns.reals(column, rows, [&](TensorNumbers* n, double value) { get(*n) = value; });
      });
  return columns.ok();
}

/// Counts come first: they say how many rows the columns have.
struct Counts {
  std::int64_t groups = 0;
  std::int64_t params = 0;
};

Counts counts_of(std::string_view payload, ReadContext& context) {
  Counts counts;
  ReadArchive archive(payload, context);
  archive(kGroupCount, counts.groups);
  archive(kParamCount, counts.params);
  return archive.finish() ? counts : Counts{-1, -1};
}

}  // namespace

void encode(std::string& out, const record::StepDetail& detail) {
  WriteArchive counts(out);
  counts(kGroupCount, static_cast<std::int64_t>(detail.groups.size()));
  message(out, kGroups, [&] { write_groups(out, detail.groups); });
  counts(kParamCount, static_cast<std::int64_t>(detail.params.size()));
  message(out, kStates, [&] {
    for (const ParamStats& param : detail.params) out += static_cast<char>(param.state);
  });
  write_numbers<&ParamStats::grad>(out, kHasGrad, kGrads, detail.params);
  write_numbers<&ParamStats::weight>(out, kHasWeight, kWeights, detail.params);
  ColumnWriter(out).optional_reals(kUpdateRatios, detail.params,
                                   [](const ParamStats& p) { return p.update_ratio; });
}

bool decode(std::string_view payload, record::StepDetail& detail, ReadContext& context) {
  const auto [group_count, param_count] = counts_of(payload, context);
  ColumnReader fields(payload);
  const auto states = fields.find(kStates).value_or(std::string_view{});
  const auto groups = fields.find(kGroups).value_or(std::string_view{});
  if (group_count < 0 || !fields.ok() || std::cmp_greater(group_count, groups.size()) ||
      std::cmp_not_equal(states.size(), param_count))
    return false;
  if (!context.spend(static_cast<std::size_t>(group_count), sizeof(GroupStats)) ||
      !context.spend(states.size(), sizeof(ParamStats)))
    return false;
  detail.groups.assign(static_cast<std::size_t>(group_count), {});
  detail.params.assign(states.size(), {});
  for (std::size_t i = 0; i < states.size(); ++i) {
    const auto state = static_cast<unsigned char>(states[i]);
    if (state < record::kParamStates)
      detail.params[i].state = static_cast<record::ParamState>(state);
    else
      ++context.unknown_words;
  }
  if (!read_groups(groups, detail.groups)) return false;
  fields.optional_reals(kUpdateRatios, detail.params,
                        [](ParamStats& p, double value) { p.update_ratio = value; });
  return read_numbers<&ParamStats::grad>(fields, kHasGrad, kGrads, detail.params) &&
         read_numbers<&ParamStats::weight>(fields, kHasWeight, kWeights, detail.params) &&
         fields.ok();
}

}  // namespace gradvane::exporters::recording
