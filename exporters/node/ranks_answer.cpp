#include "exporters/node/ranks_answer.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "exporters/api/endpoint.hpp"
#include "exporters/json/record_json.hpp"

namespace gradvane::exporters {
namespace {

using Json = nlohmann::ordered_json;

/// A number, or the word for one that JSON has not: as the status has it.
void copy(Json& into, const Json& from, const char* key) {
  if (const auto found = from.find(key); found != from.end()) into[key] = *found;
}

void add_status(Json& entry, const Json& status) {
  entry["state"] = status.at("state");
  entry["steps"] = status.at("steps");
  if (const auto latest = status.find("latest"); latest != status.end())
    for (const char* key :
         {"run_step", "time", "loss", "grad_norm", "step_seconds", "rank_wait_seconds"})
      copy(entry, *latest, key);
  std::int64_t nonfinite = 0;
  for (const Json& steps : status.at("nonfinite").at("steps"))
    nonfinite = std::max(nonfinite, steps.get<std::int64_t>());
  entry["nonfinite_steps"] = nonfinite;
  entry["incidents_total"] = status.at("incidents_total");
  Json open = Json::array();
  for (const Json& incident : status.at("incidents"))
    if (!incident.contains("closed_at")) open.push_back(incident.at("class"));
  entry["open_incidents"] = std::move(open);
}

}  // namespace

std::string ranks_with_statuses(const std::string& ranks, const std::string& url,
                                const std::map<std::int32_t, std::string>& statuses) try {
  Json json = Json::parse(ranks);
  for (Json& entry : json.at("ranks")) {
    const auto rank = entry.at("rank").get<std::int32_t>();
    if (entry.at("url") != url_of_rank(url, rank)) continue;
    const auto status = statuses.find(rank);
    entry["answers"] = status != statuses.end();
    if (status != statuses.end()) add_status(entry, Json::parse(status->second));
  }
  return to_text(json);
} catch (const Json::exception&) {  // a rank of another version
  return ranks;
}

}  // namespace gradvane::exporters
