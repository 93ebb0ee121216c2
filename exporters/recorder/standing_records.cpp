#include "exporters/recorder/standing_records.hpp"

#include <algorithm>

namespace gradvane::exporters::recording {

void FrameMaker::append_step(std::string& out, const record::StepRecord& record,
                             const record::StepDetail& detail, std::uint64_t model) {
  raw_.clear();
  encode_step(raw_, record, model);
  append_raw(out, FrameType::step);
  if (!detail.groups.empty() || !detail.params.empty()) append(out, FrameType::detail, detail);
}

void StandingRecords::set_model(std::shared_ptr<const record::ModelInfo> model) {
  std::erase_if(models_, [&](const auto& known) { return known->id == model->id; });
  if (models_.size() >= kMostModels) models_.erase(models_.begin());
  models_.push_back(std::move(model));
}

void StandingRecords::forget_models_before(std::uint64_t oldest) {
  const auto first = std::ranges::find(models_, oldest, [](const auto& m) { return m->id; });
  if (first != models_.end()) models_.erase(models_.begin(), first);
}

bool StandingRecords::has_open_incident() const {
  return !std::ranges::all_of(
      incidents_, [](const record::Incident& incident) { return incident.closed_at.has_value(); });
}

void StandingRecords::set_incident(const record::Incident& incident) {
  const auto same = std::ranges::find(incidents_, incident.id, &record::Incident::id);
  if (same != incidents_.end()) {
    *same = incident;
    return;
  }
  // The first one says how it began.
  if (incidents_.size() >= kMostIncidents) incidents_.erase(incidents_.begin() + 1);
  incidents_.push_back(incident);
}

void StandingRecords::append_all(std::string& out, FrameMaker& maker) const {
  maker.append(out, FrameType::run, run_);
  for (const auto& model : models_) maker.append(out, FrameType::model, *model);
  append_changing(out, maker);
}

void StandingRecords::append_changing(std::string& out, FrameMaker& maker) const {
  for (const record::Incident& incident : incidents_)
    maker.append(out, FrameType::incident, incident);
  if (syncs_) maker.append(out, FrameType::syncs, *syncs_);
  maker.append(out, FrameType::state, state_);
}

}  // namespace gradvane::exporters::recording
