#include "exporters/api/api.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "exporters/api/json_answer.hpp"
#include "exporters/api/param_json.hpp"
#include "exporters/board/param_order.hpp"
#include "exporters/json/sync_json.hpp"
#include "record/names.hpp"
#include "record/numbers.hpp"

namespace gradvane::exporters {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t kMostParams = 1'000'000;
constexpr std::int64_t kMostSteps = 10'000;
constexpr std::int64_t kUsualSteps = 1'000;
constexpr std::int64_t kMostSites = 1'000'000;

Json model_json(const record::ModelInfo& model) {
  std::int64_t elements = 0;
  for (const record::ParamInfo& param : model.params) elements += param.numel;
  return {{"params", model.params.size()},
          {"elements", elements},
          {"groups", model.groups},
          {"optimizers", model.optimizers}};
}

/// Totals since the run began.
Json nonfinite_json(const Status& status) {
  Json elements = Json::object();
  Json steps = Json::object();
  const record::StepRecord latest = status.latest.value_or(record::StepRecord{});
  for (std::size_t site = 0; site < record::kSites; ++site) {
    const std::string name(record::kNames<record::Site>[site]);
    elements[name] = to_json(latest.nonfinite_total[site]);
    steps[name] = latest.nonfinite_steps_total[site];
  }
  Json json{{"elements", std::move(elements)}, {"steps", std::move(steps)}};
  if (status.first_bad) {
    json["first"] = to_json(status.first_bad->what);
    if (!status.first_bad->param.empty()) json["first"]["param"] = status.first_bad->param;
  }
  return json;
}

Json groups_json(const Status& status) {
  Json groups = Json::array();
  for (std::size_t i = 0; i < status.groups.size(); ++i) {
    const GroupRow& row = status.groups[i];
    Json json{{"name", status.model->groups[i]}, {"params", row.latest.params}};
    for (std::size_t n = 0; n < record::kTensorNumbers.size(); ++n) {
      const record::TensorNumber& number = record::kTensorNumbers[n];
      if (number.site == record::Site::grad)
        put(json, number.key, row.latest.*number.group);
      else
        put_dated(json, number.key, row.of_weights[n]);
    }
    groups.push_back(std::move(json));
  }
  return groups;
}

/// The newest numbers of one optimizer's steps, or of whichever stepped last.
void put_latest(Json& json, const LatestNumbers& row, const record::ModelInfo& model) {
  if (row.latest) json["latest"] = to_json(*row.latest, model);
  put_dated(json, "last_finite_loss", row.loss);
  put_dated(json, "weight_norm", row.weight_norm);
  put_dated(json, "update_ratio", row.update_ratio);
}

/// The least that says whether the CPU waits; /api/v1/syncs has the rest.
Json sync_state_json(const Status& status) {
  Json json{{"source", name_of(status.syncs->source)}, {"reason", name_of(status.syncs->reason)}};
  if (status.latest && status.latest->syncs) {
    json["in_latest_step"] = status.latest->syncs->count(record::SyncOrigin::training);
  }
  return json;
}

/// Counts that are 0 are left out.
template <typename Kind, std::size_t kSize>
Json counts_json(const std::array<std::int64_t, kSize>& counts) {
  Json json = Json::object();
  for (std::size_t i = 0; i < kSize; ++i)
    if (counts[i] > 0) json[std::string(record::kNames<Kind>[i])] = counts[i];
  return json;
}

Json governor_json(const record::GovernorSummary& summary) {
  Json json{{"snapshots", counts_json<record::SnapshotResult>(summary.snapshots)},
            {"rollbacks", counts_json<record::RollbackReason>(summary.rollbacks)}};
  const auto put = [&](const std::string& which, const auto& snapshot) {
    if (!snapshot) return;
    json[which + "_step"] = snapshot->run_step;
    json[which + "_age_seconds"] = snapshot->age_seconds;
  };
  put("snapshot", summary.newest_snapshot);
  put("older_snapshot", summary.older_snapshot);
  return json;
}

/// Into `json`: what a policy has led to.
void put_governor(Json& json, const record::GovernorSummary& summary) {
  if (summary.has_snapshots) json["governor"] = governor_json(summary);
  if (summary.ranks_agree) json["ranks_agree"] = *summary.ranks_agree;
}

Json status_object(const Status& status, std::optional<std::int32_t> optimizer) {
  Json json = Json::object();
  put_identity(json, status.run.get());
  json["state"] = name_of(status.state);
  if (!status.reason.empty()) json["reason"] = status.reason;
  if (!status.recording.empty()) json["recording"] = status.recording;
  json["steps"] = status.steps;
  json["skipped_steps"] = status.skipped_steps;
  if (status.governor) put_governor(json, *status.governor);
  if (!optimizer) {
    put_latest(json, status, *status.model);
  } else if (const LatestNumbers* row = status.optimizers.find(*optimizer)) {
    put_latest(json, *row, *status.model);
  }
  put_dated(json, "process_resident_bytes", status.process_resident_bytes);
  put_dated(json, "device_allocated_bytes", status.device_allocated_bytes);
  json["nonfinite"] = nonfinite_json(status);
  json["syncs"] = sync_state_json(status);
  json["incidents_total"] = status.incidents_total;
  json["incidents"] = Json::array();
  for (const record::Incident& incident : status.incidents) {
    json["incidents"].push_back(to_json(incident));
  }
  json["agent"] = {{"seconds", status.agent_seconds},
                   {"of_step_seconds", status.timed_seconds},
                   {"records_dropped", status.records_dropped}};
  json["model"] = model_json(*status.model);
  json["optimizers"] = status.optimizers.optimizers();
  if (status.run) json["process"] = to_json(*status.run);
  return json;
}

}  // namespace

HttpResponse status_json(const StatusBoard& board, std::string_view query,
                         std::optional<std::uint64_t> scrapes) {
  return answer_or_explain([&] {
    const Query asked(query, {"optimizer"});
    const auto optimizer = optimizer_in(asked);
    const auto status = board.status();
    Json json = status_object(*status, optimizer);
    if (scrapes) json["agent"]["scrapes"] = *scrapes;
    json["groups"] = groups_json(*status);
    return to_text(json);
  });
}

std::string status_event(const Status& status, std::int32_t optimizer) {
  return to_text(status_object(status, optimizer));
}

HttpResponse params_json(const StatusBoard& board, std::string_view query) {
  return answer_or_explain([&] {
    const Query asked(query, {"sort", "order", "limit", "offset", "search"});
    constexpr std::array<std::string_view, 2> kOrders{"asc", "desc"};
    const std::string_view key = kParamKeys[asked.word("sort", kParamKeys, "index")];
    ParamChoice choice{.key = key, .search = asked.text("search")};
    const bool is_ordered = !asked.text("order").empty();
    const bool descending = asked.word("order", kOrders, "asc") == 1;
    if (is_ordered) choice.descending = descending;
    const auto limit = asked.number("limit", kMostParams, 1, kMostParams);
    const auto offset = asked.number("offset", 0, 0, kMostParams);

    const auto table = board.params();
    const auto rows = choose_params(*table, choice);
    Json json = Json::object();
    put_identity(json, board.status()->run.get());
    json["run_step"] = table->run_step;
    json["total"] = table->rows.size();
    json["matched"] = rows.size();
    json["params"] = Json::array();
    const auto begin = std::min(static_cast<std::size_t>(offset), rows.size());
    const auto end = std::min(begin + static_cast<std::size_t>(limit), rows.size());
    for (std::size_t i = begin; i < end; ++i) {
      json["params"].push_back(param_json(*table, rows[i]));
    }
    return to_text(json);
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
    put_identity(json, status->run.get());
    json["since"] = since;
    json["next"] = steps.empty() ? since : steps.back().run_step;
    json["steps"] = Json::array();
    for (const record::StepRecord& record : steps) {
      json["steps"].push_back(to_json(record, *status->model));
    }
    return to_text(json);
  });
}

HttpResponse syncs_json(const StatusBoard& board, std::string_view query) {
  return answer_or_explain([&] {
    const Query asked(query, {"limit", "origin"});
    SyncChoice choice;
    choice.limit = static_cast<std::size_t>(asked.number("limit", kMostSites, 1, kMostSites));
    if (asked.has("origin")) {
      choice.origin = static_cast<record::SyncOrigin>(asked.word(
          "origin", record::kNames<record::SyncOrigin>, record::kNames<record::SyncOrigin>[0]));
    }
    const auto status = board.status();
    return to_text(status->run ? to_json(*status->syncs, *status->run, choice)
                               : to_json(*status->syncs, choice));
  });
}

}  // namespace gradvane::exporters
