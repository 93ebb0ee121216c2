#include "exporters/node/ranks_answer.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "exporters/api/endpoint.hpp"
#include "exporters/json/record_json.hpp"

namespace gradvane::exporters {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 6> kOfStep{"run_step",  "time",         "loss",
                                             "grad_norm", "step_seconds", "rank_wait_seconds"};
/// What a node adds to a rank of its own.
constexpr std::array<const char*, 5> kOfStatus{"answers", "steps", "nonfinite_steps",
                                               "incidents_total", "open_incidents"};

/// A number, or the word for one that JSON has not: as the status has it.
void copy(Json& into, const Json& from, const char* key) {
  if (const auto found = from.find(key); found != from.end()) into[key] = *found;
}

void add_status(Json& entry, const Json& status) {
  entry["state"] = status.at("state");
  entry["steps"] = status.at("steps");
  if (const auto latest = status.find("latest"); latest != status.end())
    for (const char* key : kOfStep) copy(entry, *latest, key);
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

/// A number of JSON, or a word for one that it has not.
bool is_number(const Json& value) {
  return value.is_number() || value == "nan" || value == "inf" || value == "-inf";
}

/// As another node tells it of a rank of its own: of the types that the schema has, or not at all.
void add_told(Json& entry, const Json& told) {
  Json added = Json::object();
  for (const char* key : kOfStep)
    if (const auto found = told.find(key); found != told.end() && is_number(*found))
      added[key] = *found;
  for (const char* key : kOfStatus) copy(added, told, key);
  const auto is_count = [&](const char* key) {
    return !added.contains(key) || added[key].is_number_unsigned();
  };
  const bool is_sound = added.value("answers", Json()).is_boolean() && is_count("steps") &&
                        is_count("nonfinite_steps") && is_count("incidents_total") &&
                        added.value("open_incidents", Json::array()).is_array();
  const auto state = record::named<record::RunState>(told.value("state", std::string()));
  if (!is_sound || !state) return;
  for (const Json& open : added.value("open_incidents", Json::array()))
    if (!open.is_string()) return;
  entry["state"] = told.at("state");
  entry.update(added);
}

std::int32_t rank_of(const Json& entry) { return entry.at("rank").get<std::int32_t>(); }

/// The node's URL in that of a rank, http://host:port/rank/N; empty: its port is the rank's own.
std::string node_of(const Json& entry) {
  const auto& url = entry.at("url").get_ref<const std::string&>();
  const std::size_t end = url.rfind("/rank/");
  if (end == std::string::npos) return {};
  std::string node = url.substr(0, end);
  return url == url_of_rank(node, rank_of(entry)) ? node : std::string();
}

}  // namespace

std::optional<RanksAnswer> RanksAnswer::read(const std::string& ranks, std::string url) try {
  Json json = Json::parse(ranks);
  for (const Json& entry : json.at("ranks")) (void)node_of(entry);
  return RanksAnswer(std::move(json), std::move(url));
} catch (const Json::exception&) {  // a rank of another version
  return std::nullopt;
}

void RanksAnswer::add_statuses(const std::map<std::int32_t, std::string>& statuses) {
  for (Json& entry : json_.at("ranks")) {
    if (node_of(entry) != url_) continue;
    const auto status = statuses.find(rank_of(entry));
    entry["answers"] = status != statuses.end();
    try {
      if (status != statuses.end()) add_status(entry, Json::parse(status->second));
    } catch (const Json::exception&) {  // a rank of another version
    }
  }
}

std::vector<std::string> RanksAnswer::other_nodes() const {
  std::vector<std::string> urls;
  for (const Json& entry : json_.at("ranks")) {
    std::string node = node_of(entry);
    if (!node.empty() && node != url_) urls.push_back(std::move(node));
  }
  std::ranges::sort(urls);
  const auto same = std::ranges::unique(urls);
  urls.erase(same.begin(), same.end());
  return urls;
}

void RanksAnswer::add_others(const std::map<std::string, OtherNodes::Told>& told) {
  std::map<std::string, Json> read;
  for (const auto& [url, answer] : told)
    read[url] = answer.answers ? Json::parse(answer.ranks, nullptr, false) : Json();
  for (Json& entry : json_.at("ranks")) {
    const auto answer = read.find(node_of(entry));
    if (answer == read.end() || answer->first == url_) continue;
    entry["answers"] = false;
    try {
      for (const Json& there : answer->second.at("ranks"))
        if (there.at("rank") == entry.at("rank") && there.at("url") == entry.at("url"))
          add_told(entry, there);
    } catch (const Json::exception&) {  // it did not answer, or is of another version
    }
  }
}

void RanksAnswer::leave_out_others() {
  Json own = Json::array();
  for (Json& entry : json_.at("ranks"))
    if (node_of(entry) == url_) own.push_back(std::move(entry));
  json_["ranks"] = std::move(own);
}

std::string RanksAnswer::text() const { return to_text(json_); }

}  // namespace gradvane::exporters
