#include "exporters/json/record_json.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "record/names.hpp"
#include "record/numbers.hpp"

namespace gradvane::exporters {

using Json = nlohmann::ordered_json;
using record::Site;

namespace {

template <typename T>
Json json_of(const T& value) {
  if constexpr (std::is_same_v<T, double>) {
    return to_json(value);
  } else {
    return Json(value);
  }
}

/// A number where there is one parameter group, an array where there are more.
Json learning_rates(const record::StepRecord& record) {
  if (record.lr_count == 1) return to_json(record.lr[0]);
  Json rates = Json::array();
  for (std::int32_t i = 0; i < std::min(record.lr_count, record::kMaxLearningRates); ++i) {
    rates.push_back(to_json(record.lr[static_cast<std::size_t>(i)]));
  }
  return rates;
}

Json first_nonfinite(const record::FirstNonfinite& first, const record::ModelInfo& model) {
  Json result{{"site", name_of(first.site)}, {"kind", name_of(first.kind)}};
  if (std::string param = model.param_name(first.param); !param.empty())
    result["param"] = std::move(param);
  if (first.element >= 0) result["element"] = first.element;
  return result;
}

void put_gradients(Json& json, const record::StepRecord& record) {
  if (!record.site_measured[index_of(Site::grad)].value_or(false)) return;
  const auto count = [&](record::ParamState state) { return record.params[index_of(state)]; };
  json["zero"] = record.grad_zero;
  json["subnormal"] = record.grad_subnormal;
  json["numel"] = record.grad_numel;
  json["params"] = count(record::ParamState::zero) + count(record::ParamState::finite) +
                   count(record::ParamState::nonfinite);
  json["vanishing"] = record.vanishing;
  json["exploding"] = record.exploding;
}

void put_states(Json& json, const record::StepRecord& record) {
  Json states = Json::object();
  for (std::size_t i = 0; i < record::kParamStates; ++i) {
    if (record.params[i] > 0)
      states[std::string(record::kNames<record::ParamState>[i])] = record.params[i];
  }
  if (!states.empty()) json["param_states"] = std::move(states);
}

void put_nonfinite(Json& json, const record::StepRecord& record, const record::ModelInfo& model) {
  Json sites = Json::object();
  for (std::size_t site = 0; site < record::kSites; ++site) {
    if (!record.site_measured[site].value_or(false)) continue;
    sites[std::string(record::kNames<record::Site>[site])] = to_json(record.nonfinite[site]);
  }
  json["nonfinite"] = std::move(sites);
  if (record.first_nonfinite) {
    json["first_nonfinite"] = first_nonfinite(*record.first_nonfinite, model);
  }
}

void put_time(Json& json, const record::StepRecord& record) {
  Json phases = Json::object();
  for (std::size_t i = 0; i < record::kPhases; ++i) {
    if (record.phase_seconds[i] > 0) {
      phases[std::string(record::kNames<record::Phase>[i])] = to_json(record.phase_seconds[i]);
    }
  }
  if (!phases.empty()) json["phase_seconds"] = std::move(phases);
}

Json origin_syncs(const record::StepSyncs& syncs, record::SyncOrigin origin) {
  const auto o = index_of(origin);
  Json kinds = Json::object();
  for (std::size_t kind = 0; kind < record::kSyncKinds; ++kind) {
    const std::int32_t calls = syncs.calls[o][kind];
    if (calls > 0) kinds[std::string(record::kNames<record::SyncKind>[kind])] = calls;
  }
  return {{"calls", syncs.count(origin)},
          {"seconds", to_json(syncs.seconds[o])},
          {"kinds", std::move(kinds)}};
}

/// A profiler is there in few runs, and is left out where it did nothing.
void put_syncs(Json& json, const record::StepRecord& record) {
  if (!record.syncs) return;
  json["syncs"] = Json::object();
  for (const auto origin :
       {record::SyncOrigin::training, record::SyncOrigin::gradvane, record::SyncOrigin::profiler}) {
    Json syncs = origin_syncs(*record.syncs, origin);
    if (origin == record::SyncOrigin::profiler && syncs["kinds"].empty()) continue;
    json["syncs"][std::string(name_of(origin))] = std::move(syncs);
  }
  json["syncs"]["polls"] = record.syncs->polls;
  json["own_sync_budget"] = record.own_sync_budget;
}

void put_user_metrics(Json& json, const record::StepRecord& record,
                      const record::ModelInfo& model) {
  Json user = Json::object();
  const auto count =
      std::min(static_cast<std::size_t>(std::clamp(record.user_count, 0, record::kMaxUserMetrics)),
               model.user_metrics.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (record::is_logged(record.user[i])) user[model.user_metrics[i]] = to_json(record.user[i]);
  }
  if (!user.empty()) json["user"] = std::move(user);
}

/// Bytes are whole numbers, kept whole even where a double would round them.
void put_numbers(Json& json, const record::StepRecord& record) {
  for (const record::StepNumber& number : record::kStepNumbers) {
    if (!number.is_logged) continue;
    if (number.bytes != nullptr)
      put(json, number.key, record.*number.bytes);
    else
      put(json, number.key, value_of(number, record));
  }
}

}  // namespace

template <typename T>
void put(Json& object, std::string_view key, const std::optional<T>& value) {
  if (value) object[std::string(key)] = json_of(*value);
}
template void put(Json&, std::string_view, const std::optional<double>&);
template void put(Json&, std::string_view, const std::optional<std::int64_t>&);

Json to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json to_json(const record::NonfiniteCounts& counts) {
  Json result = Json::object();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    result[std::string(record::kNames<record::NonfiniteKind>[i])] = counts[i];
  }
  return result;
}

Json to_json(const record::StepRecord& record, const record::ModelInfo& model) {
  Json json{{"step", record.step},
            {"run_step", record.run_step},
            {"time", to_json(record.time)},
            {"optimizer", record.optimizer},
            {"micro_steps", record.micro_steps}};
  put_numbers(json, record);
  if (record.read_at != record::ReadAt::none) json["read_at"] = name_of(record.read_at);
  if (record.skipped != record::SkipReason::none) json["skipped"] = name_of(record.skipped);
  if (record.lr_count > 0) json["lr"] = learning_rates(record);
  put_nonfinite(json, record, model);
  put_gradients(json, record);
  put_states(json, record);
  put_time(json, record);
  put_syncs(json, record);
  put_user_metrics(json, record, model);
  if (record.dropped_before > 0) json["dropped_before"] = record.dropped_before;
  return json;
}

namespace {

void put_element(Json& json, const record::FirstNonfinite& first) {
  json["site"] = name_of(first.site);
  json["kind"] = name_of(first.kind);
  if (first.element >= 0) json["element"] = first.element;
}

Json appearance_json(const record::Appearance& appearance) {
  Json json{{"site", name_of(appearance.site)}, {"run_step", appearance.run_step}};
  if (!appearance.param.empty()) json["param"] = appearance.param;
  if (appearance.first) put_element(json, *appearance.first);
  put(json, "last_finite", appearance.last_finite);
  for (std::size_t k = 0; k < record::kNonfiniteKinds; ++k)
    json["elements"][record::kNames<record::NonfiniteKind>[k]] = appearance.counts[k];
  return json;
}

}  // namespace

Json to_json(const record::Incident& incident) {
  Json json{{"id", incident.id},
            {"class", name_of(incident.kind)},
            {"rank", incident.rank},
            {"first_step", incident.first_step},
            {"last_step", incident.last_step},
            {"steps", incident.steps},
            {"opened_at", to_json(incident.opened_at)}};
  put(json, "closed_at", incident.closed_at);
  if (incident.reopened > 0) json["reopened"] = incident.reopened;
  if (!incident.param.empty()) json["param"] = incident.param;
  if (!incident.group.empty()) json["group"] = incident.group;
  if (incident.first) put_element(json, *incident.first);
  if (incident.began_in) json["began_in"] = name_of(*incident.began_in);
  put(json, "micro_step", incident.micro_step);
  put(json, "last_good_step", incident.last_good_step);
  put(json, "last_good_checkpoint", incident.last_good_checkpoint);
  for (const record::Appearance& appearance : incident.order)
    json["order"].push_back(appearance_json(appearance));
  if (incident.module) {
    json["module"] = {{"name", incident.module->name},
                      {"type", incident.module->type},
                      {"direction", incident.module->is_backward ? "backward" : "forward"},
                      {"at", name_of(incident.module->at)},
                      {"run_step", incident.module->run_step}};
    if (incident.module->micro_step > 0) json["module"]["micro_step"] = incident.module->micro_step;
  }
  json["evidence"] = incident.evidence;
  return json;
}

Json to_json(const record::RunInfo& run) {
  Json settings = Json::array();
  for (const record::Setting& setting : run.settings) {
    settings.push_back(
        {{"key", setting.key}, {"value", setting.value}, {"source", setting.source}});
    if (setting.since > 0) settings.back()["since"] = to_json(setting.since);
  }
  return {{"run_id", run.run_id},
          {"local_rank", run.local_rank},
          {"world_size", run.world_size},
          {"host", run.host},
          {"pid", run.pid},
          {"version", run.version},
          {"torch_version", run.torch_version},
          {"start_time", to_json(run.start_time)},
          {"settings", std::move(settings)}};
}

std::string to_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gradvane::exporters
