#include "exporters/replay/replay.hpp"

#include <nlohmann/json.hpp>

#include "exporters/json/record_json.hpp"
#include "exporters/json/sync_json.hpp"
#include "exporters/replay/story.hpp"
#include "record/names.hpp"

namespace gradvane::exporters::recording {

using Json = nlohmann::ordered_json;
using exporters::to_json;
using record::RunState;

namespace {

/// As it was when it opened, then as it was last: gauges of open incidents come out right.
void put_incident(const record::Incident& incident, Exporter& to) {
  record::Incident opened = incident;
  opened.closed_at.reset();
  (void)to.export_incident(opened);
  if (incident.closed_at) (void)to.export_incident(incident);
}

void put_ending(const Recording& recording, Exporter& to) {
  const Story story = story_of(recording);
  switch (story.ending) {
    case Ending::finished:
      (void)to.set_run_state(RunState::finished, story.reason == "finish" ? "" : story.reason);
      break;
    case Ending::failed:
      (void)to.set_run_state(RunState::failed, story.reason);
      break;
    case Ending::went_on:
      (void)to.set_run_state(RunState::running, "");
      break;
    case Ending::abrupt:
      (void)to.set_run_state(RunState::failed, ending_of(story));
      break;
  }
}

Json run_json(const record::RunInfo& run) {
  Json json{{"run", run.run}, {"rank", run.rank}};
  json.update(to_json(run));
  return json;
}

Json model_json(const record::ModelInfo& model) {
  Json params = Json::array();
  for (const record::ParamInfo& param : model.params) {
    const auto group = static_cast<std::size_t>(param.group);
    Json json{{"name", param.name}};
    if (group < model.groups.size()) json["group"] = model.groups[group];
    json["shape"] = param.shape;
    json["dtype"] = param.dtype;
    json["device"] = param.device;
    json["requires_grad"] = param.requires_grad;
    params.push_back(std::move(json));
  }
  return {{"id", model.id},
          {"params", std::move(params)},
          {"groups", model.groups},
          {"optimizers", model.optimizers}};
}

}  // namespace

void replay(const Recording& recording, Exporter& to) {
  const auto none = std::make_shared<const record::ModelInfo>();
  auto model = recording.steps.empty() ? none : recording.steps.front().model;
  (void)to.start(recording.run.value_or(record::RunInfo{}), model);
  auto incident = recording.incidents.begin();
  for (const RecordedStep& step : recording.steps) {
    if (step.model != model) {
      model = step.model;
      (void)to.set_model(model);
    }
    (void)to.export_step(step.record, recording.detail(step), *model);
    for (; incident != recording.incidents.end() && incident->first_step <= step.record.run_step;
         ++incident)
      put_incident(*incident, to);
  }
  for (; incident != recording.incidents.end(); ++incident) put_incident(*incident, to);
  if (recording.syncs) (void)to.export_syncs(recording.syncs);
  put_ending(recording, to);
}

Json to_json(const Recording& recording) {
  Json json = Json::object();
  if (recording.run) json["process"] = run_json(*recording.run);
  json["models"] = Json::array();
  for (const auto& model : recording.models) json["models"].push_back(model_json(*model));
  json["incidents"] = Json::array();
  for (const auto& incident : recording.incidents) json["incidents"].push_back(to_json(incident));
  json["states"] = Json::array();
  for (const StateFrame& state : recording.states)
    json["states"].push_back({{"state", name_of(state.state)},
                              {"reason", state.reason},
                              {"run_step", state.run_step},
                              {"time", to_json(state.time)}});
  if (recording.end)
    json["end"] = {{"reason", recording.end->reason}, {"run_is_over", recording.end->run_is_over}};
  if (recording.syncs && recording.run)
    json["syncs"] = to_json(*recording.syncs, *recording.run, SyncChoice{});
  json["steps"] = Json::array();
  for (const RecordedStep& step : recording.steps)
    json["steps"].push_back(to_json(step.record, *step.model));
  json["story"] = to_json(story_of(recording));
  return json;
}

std::string step_log_of(const Recording& recording) {
  std::string text;
  for (const RecordedStep& step : recording.steps)
    text.append(to_text(to_json(step.record, *step.model))) += '\n';
  return text;
}

}  // namespace gradvane::exporters::recording
