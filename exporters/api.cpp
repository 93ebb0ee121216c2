#include "exporters/api.hpp"

#include <array>
#include <nlohmann/json.hpp>

#include "exporters/param_order.hpp"
#include "exporters/query.hpp"
#include "exporters/record_json.hpp"
#include "exporters/sync_json.hpp"
#include "record/names.hpp"

namespace gradvane::exporters {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t kMostParams = 1'000'000;
constexpr std::int64_t kMostSteps = 10'000;
constexpr std::int64_t kUsualSteps = 1'000;
constexpr std::int64_t kMostSites = 1'000'000;

HttpResponse answer(const Json& json, int status = 200) {
  return {.status = status, .content_type = "application/json", .body = to_text(json) + '\n'};
}

/// `make` reads the query; what it refuses becomes the answer.
template <typename Make>
HttpResponse answer_or_explain(Make make) {
  try {
    return answer(make());
  } catch (const BadQuery& error) {
    return answer({{"error", error.what()}}, 400);
  }
}

void put_identity(Json& json, const Status& status) {
  if (!status.run) return;
  json["run"] = status.run->run;
  json["rank"] = status.run->rank;
}

template <typename T>
void put_dated(Json& json, const char* key, const std::optional<Dated<T>>& dated) {
  if (!dated) return;
  json[key] = Json::object();
  put(json[key], "value", std::optional(dated->value));
  json[key]["run_step"] = dated->run_step;
}

Json run_json(const record::RunInfo& run) {
  Json settings = Json::array();
  for (const record::Setting& setting : run.settings) {
    settings.push_back(
        {{"key", setting.key}, {"value", setting.value}, {"source", setting.source}});
  }
  return {{"local_rank", run.local_rank},
          {"world_size", run.world_size},
          {"host", run.host},
          {"pid", run.pid},
          {"version", run.version},
          {"torch_version", run.torch_version},
          {"start_time", to_json(run.start_time)},
          {"settings", std::move(settings)}};
}

Json model_json(const record::ModelInfo& model) {
  std::int64_t elements = 0;
  for (const record::ParamInfo& param : model.params) elements += param.numel;
  return {{"params", model.params.size()},
          {"elements", elements},
          {"groups", model.groups},
          {"optimizers", model.optimizers}};
}

Json bad_element(const BadElement& bad) {
  Json json{{"run_step", bad.run_step}, {"site", name_of(bad.site)}};
  if (bad.kind) json["kind"] = name_of(*bad.kind);
  if (bad.element >= 0) json["element"] = bad.element;
  return json;
}

/// Totals since the run began.
Json nonfinite_json(const Status& status) {
  Json elements = Json::object();
  Json steps = Json::object();
  const record::StepRecord latest = status.latest.value_or(record::StepRecord{});
  for (std::size_t site = 0; site < record::kSites; ++site) {
    const std::string name(record::kSiteNames[site]);
    elements[name] = to_json(latest.nonfinite_total[site]);
    steps[name] = latest.nonfinite_steps_total[site];
  }
  Json json{{"elements", std::move(elements)}, {"steps", std::move(steps)}};
  if (status.first_bad) {
    json["first"] = bad_element(status.first_bad->what);
    if (!status.first_bad->param.empty()) json["first"]["param"] = status.first_bad->param;
  }
  return json;
}

Json groups_json(const Status& status) {
  Json groups = Json::array();
  for (std::size_t i = 0; i < status.groups.size(); ++i) {
    const GroupRow& row = status.groups[i];
    Json json{{"name", status.model->groups[i]}, {"params", row.latest.params}};
    put(json, "grad_norm", row.latest.grad_norm);
    put(json, "grad_abs_max", row.latest.grad_abs_max);
    put(json, "grad_zero_ratio", row.latest.grad_zero_ratio);
    put_dated(json, "weight_norm", row.weight_norm);
    put_dated(json, "update_ratio", row.update_ratio);
    groups.push_back(std::move(json));
  }
  return groups;
}

/// The least that says whether the CPU waits; /api/v1/syncs has the rest.
Json sync_state_json(const Status& status) {
  Json json{{"source", name_of(status.syncs->source)}, {"reason", name_of(status.syncs->reason)}};
  if (status.latest && status.latest->syncs) {
    json["in_latest_step"] = status.latest->syncs->count(record::SyncOrigin::training);
  }
  return json;
}

/// The element's index in each dimension; empty where the shape does not cover it.
Json position_in(const std::vector<std::int64_t>& shape, std::int64_t element) {
  Json position = Json::array();
  std::vector<std::int64_t> parts(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] <= 0) return position;
    parts[i] = element % shape[i];
    element /= shape[i];
  }
  if (element == 0) position = parts;
  return position;
}

Json numbers_json(const Dated<record::TensorNumbers>& dated) {
  const record::TensorNumbers& numbers = dated.value;
  Json json{{"run_step", dated.run_step},
            {"numel", numbers.numel},
            {"norm", to_json(numbers.norm)},
            {"abs_max", to_json(numbers.abs_max)}};
  if (numbers.abs_min_nonzero <= numbers.abs_max) {
    json["abs_min_nonzero"] = to_json(numbers.abs_min_nonzero);
  }
  put(json, "mean", mean_of(numbers));
  put(json, "zero_ratio", zero_ratio_of(numbers));
  json["zero"] = numbers.zero;
  json["subnormal"] = numbers.subnormal;
  json["nonfinite"] = to_json(numbers.nonfinite);
  if (numbers.first_nonfinite >= 0) json["first_nonfinite"] = numbers.first_nonfinite;
  return json;
}

Json param_json(const ParamTable& table, std::size_t index) {
  const record::ParamInfo& info = table.model->params[index];
  const ParamRow& row = table.rows[index];
  const auto group = static_cast<std::size_t>(info.group);
  Json json{{"index", index}, {"name", info.name}};
  if (!info.aliases.empty()) json["aliases"] = info.aliases;
  if (group < table.model->groups.size()) json["group"] = table.model->groups[group];
  json["shape"] = info.shape;
  json["numel"] = info.numel;
  json["dtype"] = info.dtype;
  json["device"] = info.device;
  json["requires_grad"] = info.requires_grad;
  json["state"] = name_of(row.state);
  if (row.grad) json["grad"] = numbers_json(*row.grad);
  if (row.weight) json["weight"] = numbers_json(*row.weight);
  put_dated(json, "update_ratio", row.update_ratio);
  json["nonfinite_steps"] = row.nonfinite_steps;
  if (row.first_bad) {
    json["first_nonfinite"] = bad_element(*row.first_bad);
    Json position = position_in(info.shape, row.first_bad->element);
    if (!position.empty() && row.first_bad->element >= 0) {
      json["first_nonfinite"]["position"] = std::move(position);
    }
  }
  return json;
}

}  // namespace

HttpResponse status_json(const StatusBoard& board, std::string_view query) {
  return answer_or_explain([&] {
    const Query none(query, {});
    const auto status = board.status();
    Json json = Json::object();
    put_identity(json, *status);
    json["state"] = name_of(status->state);
    if (!status->reason.empty()) json["reason"] = status->reason;
    if (!status->recording.empty()) json["recording"] = status->recording;
    json["steps"] = status->steps;
    json["skipped_steps"] = status->skipped_steps;
    if (status->latest) json["latest"] = to_json(*status->latest, *status->model);
    put_dated(json, "last_finite_loss", status->loss);
    put_dated(json, "weight_norm", status->weight_norm);
    put_dated(json, "update_ratio", status->update_ratio);
    put_dated(json, "process_resident_bytes", status->process_resident_bytes);
    put_dated(json, "device_allocated_bytes", status->device_allocated_bytes);
    json["nonfinite"] = nonfinite_json(*status);
    json["syncs"] = sync_state_json(*status);
    json["incidents_total"] = status->incidents_total;
    json["incidents"] = Json::array();
    for (const record::Incident& incident : status->incidents) {
      json["incidents"].push_back(to_json(incident));
    }
    json["agent"] = {{"seconds", status->agent_seconds},
                     {"of_step_seconds", status->timed_seconds},
                     {"records_dropped", status->records_dropped}};
    json["model"] = model_json(*status->model);
    json["groups"] = groups_json(*status);
    if (status->run) json["process"] = run_json(*status->run);
    return json;
  });
}

HttpResponse params_json(const StatusBoard& board, std::string_view query) {
  return answer_or_explain([&] {
    const Query asked(query, {"sort", "order", "limit", "search"});
    constexpr std::array<std::string_view, 2> kOrders{"asc", "desc"};
    const std::string_view key = kParamKeys[asked.word("sort", kParamKeys, "index")];
    ParamChoice choice{.key = key, .search = asked.text("search")};
    const bool is_ordered = !asked.text("order").empty();
    const bool descending = asked.word("order", kOrders, "asc") == 1;
    if (is_ordered) choice.descending = descending;
    const auto limit = asked.number("limit", kMostParams, 1, kMostParams);

    const auto table = board.params();
    const auto rows = choose_params(*table, choice);
    Json json = Json::object();
    put_identity(json, *board.status());
    json["run_step"] = table->run_step;
    json["total"] = table->rows.size();
    json["matched"] = rows.size();
    json["params"] = Json::array();
    for (const std::size_t index : rows) {
      if (std::cmp_greater_equal(json["params"].size(), limit)) break;
      json["params"].push_back(param_json(*table, index));
    }
    return json;
  });
}

HttpResponse steps_json(const StatusBoard& board, std::string_view query) {
  return answer_or_explain([&] {
    const Query asked(query, {"since", "limit"});
    const auto since = asked.number("since", 0, 0, std::numeric_limits<std::int64_t>::max());
    const auto limit = asked.number("limit", kUsualSteps, 1, kMostSteps);
    const auto status = board.status();
    const auto steps = board.steps(since, static_cast<std::size_t>(limit));
    Json json = Json::object();
    put_identity(json, *status);
    json["since"] = since;
    json["next"] = steps.empty() ? since : steps.back().run_step;
    json["steps"] = Json::array();
    for (const record::StepRecord& record : steps) {
      json["steps"].push_back(to_json(record, *status->model));
    }
    return json;
  });
}

HttpResponse syncs_json(const StatusBoard& board, std::string_view query) {
  return answer_or_explain([&] {
    const Query asked(query, {"limit", "origin"});
    SyncChoice choice;
    choice.limit = static_cast<std::size_t>(asked.number("limit", kMostSites, 1, kMostSites));
    if (asked.has("origin")) {
      choice.origin = static_cast<record::SyncOrigin>(
          asked.word("origin", record::kSyncOriginNames, record::kSyncOriginNames[0]));
    }
    const auto status = board.status();
    return status->run ? to_json(*status->syncs, *status->run, choice)
                       : to_json(*status->syncs, choice);
  });
}

}  // namespace gradvane::exporters
