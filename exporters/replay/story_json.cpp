// The story for programs.
#include <array>
#include <nlohmann/json.hpp>

#include "exporters/json/record_json.hpp"
#include "exporters/replay/story.hpp"
#include "record/names.hpp"

namespace gradvane::exporters::recording {

using Json = nlohmann::ordered_json;
using exporters::to_json;

namespace {

constexpr std::array<const char*, 4> kEndings{"finished", "failed", "went_on", "abrupt"};

void put_spread(Json& json, const char* key, const std::optional<Spread>& spread) {
  if (!spread) return;
  json[key] = {{"median", to_json(spread->median)},
               {"low", to_json(spread->low)},
               {"high", to_json(spread->high)},
               {"count", spread->count}};
}

Json normal_json(const Normal& normal) {
  Json json{{"first_step", normal.first_step}, {"last_step", normal.last_step}};
  put_spread(json, "loss", normal.loss);
  put_spread(json, "grad_norm", normal.grad_norm);
  put_spread(json, "step_seconds", normal.step_seconds);
  return json;
}

Json moved_json(const Moved& moved) {
  Json json{{"what", moved.what}, {"run_step", moved.run_step}};
  if (!moved.group.empty()) json["group"] = moved.group;
  if (!moved.param.empty()) json["param"] = moved.param;
  json["value"] = to_json(moved.value);
  json["usual"] = to_json(moved.usual);
  json["score"] = to_json(moved.score);
  return json;
}

Json first_bad_json(const FirstBadStep& bad) {
  Json json{{"run_step", bad.run_step},
            {"site", name_of(bad.what.site)},
            {"kind", name_of(bad.what.kind)}};
  if (!bad.param.empty()) json["param"] = bad.param;
  if (bad.what.element >= 0) json["element"] = bad.what.element;
  return json;
}

Json after_json(const After& after) {
  Json json{{"steps", after.steps}, {"nonfinite", after.bad}, {"skipped", after.skipped}};
  put(json, "last_loss", after.last_loss);
  return json;
}

Json damage_json(const Damage& damage) {
  return {{"header", damage.header},
          {"frames", damage.frames},
          {"unknown_frames", damage.unknown_frames},
          {"unknown_words", damage.unknown_words},
          {"steps_left_out", damage.steps_left_out},
          {"bytes_skipped", damage.bytes_skipped}};
}

}  // namespace

Json to_json(const Story& story) {
  Json json = Json::object();
  if (story.run) {
    json["run"] = story.run->run;
    json["rank"] = story.run->rank;
    json["world_size"] = story.run->world_size;
    json["host"] = story.run->host;
    json["pid"] = story.run->pid;
    json["version"] = story.run->version;
    json["torch_version"] = story.run->torch_version;
    json["start_time"] = to_json(story.run->start_time);
  }
  json["steps"] = {{"count", story.steps}, {"missing", story.missing}};
  if (story.steps > 0) {
    json["steps"]["first"] = story.first_step;
    json["steps"]["last"] = story.last_step;
    json["steps"]["last_time"] = to_json(story.last_time);
  }
  if (story.normal) json["normal"] = normal_json(*story.normal);
  json["moved"] = Json::array();
  for (const Moved& moved : story.moved) json["moved"].push_back(moved_json(moved));
  put(json, "fault_step", story.fault);
  if (story.first_bad) json["first_nonfinite"] = first_bad_json(*story.first_bad);
  if (story.broke) json["incident"] = to_json(*story.broke);
  json["other_incidents"] = Json::array();
  for (const record::Incident& other : story.others)
    json["other_incidents"].push_back(to_json(other));
  if (story.after) json["after"] = after_json(*story.after);
  json["weights"] = Json::object();
  put(json["weights"], "found_nonfinite", story.weights.found_bad);
  put(json["weights"], "last_finite", story.weights.last_finite);
  json["ending"] = {{"how", kEndings[static_cast<std::size_t>(story.ending)]},
                    {"sentence", ending_of(story)}};
  if (!story.reason.empty()) json["ending"]["reason"] = story.reason;
  json["damage"] = damage_json(story.damage);
  return json;
}

}  // namespace gradvane::exporters::recording
