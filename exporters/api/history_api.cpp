#include "exporters/api/history_api.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <span>

#include "exporters/api/column_json.hpp"
#include "exporters/api/json_answer.hpp"
#include "exporters/api/param_json.hpp"
#include "record/names.hpp"

namespace gradvane::exporters {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kUsualHistorySteps = 4096;
constexpr std::int64_t kMostHistorySteps = 100'000;
constexpr std::int64_t kUsualRows = 200;
constexpr std::int64_t kMostRows = 1'000;
constexpr auto kGridKeys = [] {
  std::array<std::string_view, kGridValues> keys{};
  std::ranges::transform(record::kTensorNumbers, keys.begin(), &record::TensorNumber::key);
  return keys;
}();

/// Which process it is of: another one has begun at another time.
Json identity(const StatusBoard& board) {
  const auto status = board.status();
  Json json = Json::object();
  put_identity(json, status->run.get());
  if (status->run) json["started"] = status->run->start_time;
  return json;
}

void put_series(ColumnJson& json, const SeriesColumns& columns, bool has_extent) {
  json.points(columns.points);
  // Of nearly every run they are the same.
  const auto is_own = [](const Point& point, OwnSteps own) {
    return point.first == own.first && point.last == own.last;
  };
  if (!std::ranges::equal(columns.points, columns.own, is_own)) {
    json.integers("own_first", columns.own, &OwnSteps::first);
    json.integers("own_last", columns.own, &OwnSteps::last);
  }
  json.open("series", '{');
  for (const SeriesColumns::Series& series : columns.series) {
    const auto part = [&](std::string_view name, double Extent::* member) {
      json.numbers(name, series.values, [member](const std::optional<Extent>& extent) {
        return extent ? std::optional((*extent).*member) : std::nullopt;
      });
    };
    json.open(series.name, '{');
    part("last", &Extent::last);
    if (has_extent) part("min", &Extent::min);
    if (has_extent) part("max", &Extent::max);
    json.close('}');
  }
  json.close('}');
  json.open("nonfinite", '{');
  for (std::size_t site = 0; site < record::kSites; ++site)
    json.integers(record::kNames<record::Site>[site], columns.nonfinite[site], std::identity());
  json.close('}');
  json.integers("skipped", columns.skipped, std::identity());
}

std::string columns_text(const Json& head, const SeriesColumns& columns, bool has_extent) {
  ColumnJson json(to_text(head));
  put_series(json, columns, has_extent);
  return json.take();
}

Json series_head(const StatusBoard& board, std::string_view resolution, std::int32_t optimizer,
                 std::int64_t since, std::int64_t next, std::int64_t steps_per_point) {
  Json head = identity(board);
  head["resolution"] = resolution;
  head["optimizer"] = optimizer;
  head["steps_per_point"] = steps_per_point;
  head["since"] = since;
  head["next"] = next;
  return head;
}

std::string steps_answer(const StatusBoard& board, std::int32_t optimizer, std::uint64_t since,
                         const TakenSteps& taken) {
  return columns_text(series_head(board, "steps", optimizer, static_cast<std::int64_t>(since),
                                  static_cast<std::int64_t>(taken.next), 1),
                      exact_columns(taken.steps, *board.status()->model), false);
}

std::optional<double> value_of(const GridCell& cell, std::size_t value) {
  return magnitude_of(cell.values[value]);
}

void put_grid_head(Json& head, const GridColumns& columns, std::int64_t since) {
  head["steps_per_point"] = columns.steps_per_point;
  head["since"] = since;
  head["next"] = columns.next;
}

}  // namespace

StepsText steps_text(const StatusBoard& board, std::int32_t optimizer, std::uint64_t since,
                     std::size_t limit) {
  const TakenSteps taken = board.steps_of(optimizer, since, limit);
  if (taken.steps.empty()) return {.next = taken.next};
  return {steps_answer(board, optimizer, since, taken), taken.next};
}

HttpResponse history_json(const StatusBoard& board, const RunHistory& history,
                          std::string_view query) {
  return answer_or_explain([&] {
    const Query asked(query, {"resolution", "since", "limit", "optimizer"});
    constexpr std::array<std::string_view, 2> kResolutions{"run", "steps"};
    const bool is_exact = asked.word("resolution", kResolutions, "run") == 1;
    const auto since = asked.number("since", 0, 0, kMost);
    const auto limit = asked.number("limit", kUsualHistorySteps, 1, kMostHistorySteps);
    const std::int32_t optimizer = optimizer_in(asked).value_or(board.status()->lead.optimizer());
    if (is_exact) {
      const auto cursor = static_cast<std::uint64_t>(since);
      return steps_answer(board, optimizer, cursor,
                          board.steps_of(optimizer, cursor, static_cast<std::size_t>(limit)));
    }
    const SeriesColumns columns = history.series(optimizer, since);
    return columns_text(
        series_head(board, "run", optimizer, since, columns.next, columns.steps_per_point), columns,
        true);
  });
}

HttpResponse heatmap_json(const StatusBoard& board, const RunHistory& history,
                          std::string_view query) {
  return answer_or_explain([&] {
    const Query asked(query, {"rows", "value", "group", "search", "since", "limit"});
    constexpr std::array<std::string_view, 2> kRows{"groups", "params"};
    const bool is_params = asked.word("rows", kRows, "groups") == 1;
    if (!is_params && (asked.has("group") || asked.has("search")))
      throw BadQuery("'group' and 'search' are for rows=params");
    const std::size_t value = asked.word("value", kGridKeys, "grad_norm");
    const auto since = asked.number("since", 0, 0, kMost);
    const auto grid = history.grid(
        {.rows = is_params ? RunHistory::Rows::params : RunHistory::Rows::groups,
         .group = asked.text("group"),
         .search = asked.text("search"),
         .limit = static_cast<std::size_t>(asked.number("limit", kUsualRows, 1, kMostRows))},
        since);
    const record::ModelInfo& model = *grid.model;

    Json head = identity(board);
    head["rows"] = kRows[is_params ? 1 : 0];
    head["value"] = kGridKeys[value];
    put_grid_head(head, grid.columns, since);
    head["total"] = is_params ? model.params.size() : model.groups.size();
    head["matched"] = grid.matched;
    head["names"] = Json::array();
    for (const std::size_t row : grid.rows)
      head["names"].push_back(is_params ? model.params[row].name : model.groups[row]);

    ColumnJson json(to_text(head));
    json.points(grid.columns.points);
    const std::size_t width = grid.columns.points.size();
    const std::span<const GridCell> cells(grid.columns.cells);
    json.open("values", '[');
    for (std::size_t row = 0; row < grid.rows.size(); ++row)
      json.numbers({}, cells.subspan(row * width, width),
                   [value](const GridCell& cell) { return value_of(cell, value); });
    json.close(']');
    json.open("nonfinite", '[');
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (cells[i].bad_steps == 0) continue;
      json.open({}, '[');
      json.integer(static_cast<std::int64_t>(i / width));
      json.integer(static_cast<std::int64_t>(i % width));
      json.integer(cells[i].bad_steps);
      json.close(']');
    }
    json.close(']');
    return json.take();
  });
}

HttpResponse param_history_json(const StatusBoard& board, const RunHistory& history,
                                std::string_view query) {
  return answer_or_explain([&] {
    const Query asked(query, {"name"});
    const std::string name = asked.text("name");
    const auto table = board.params();
    const auto& params = table->model->params;
    const auto found = std::ranges::find(params, name, &record::ParamInfo::name);
    if (found == params.end()) throw NotThere("there is no parameter '" + name + "'");
    auto grid = history.grid({.rows = RunHistory::Rows::params, .name = name, .limit = 1}, 0);
    if (grid.rows.empty()) grid.columns.points.clear();  // the model has just changed

    Json head = identity(board);
    head["param"] = param_json(*table, static_cast<std::size_t>(found - params.begin()));
    head["steps_per_point"] = grid.columns.steps_per_point;
    ColumnJson json(to_text(head));
    json.points(grid.columns.points);
    json.open("series", '{');
    for (std::size_t value = 0; value < kGridValues; ++value)
      json.numbers(kGridKeys[value], grid.columns.cells,
                   [value](const GridCell& cell) { return value_of(cell, value); });
    json.close('}');
    json.integers("nonfinite", grid.columns.cells, &GridCell::bad_steps);
    return json.take();
  });
}

}  // namespace gradvane::exporters
