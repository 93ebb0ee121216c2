#include "exporters/node/ranks_answer.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "exporters/api/endpoint.hpp"
#include "exporters/http/access/host_rule.hpp"
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

bool is_list_of_texts(const Json& value) {
  return value.is_array() &&
         std::ranges::all_of(value, [](const Json& each) { return each.is_string(); });
}

/// Whether what another node says of a rank of its own has the types of the schema. What is sound is shallow too, and may
/// be copied.
bool is_sound(const Json& there) {
  const auto is_as = [&](const char* key, const auto& is_right) {
    const auto found = there.find(key);
    return found == there.end() || is_right(*found);
  };
  const auto is_count = [](const Json& value) { return value.is_number_unsigned(); };
  const auto is_state = [](const Json& value) {
    return value.is_string() &&
           record::named<record::RunState>(value.get_ref<const std::string&>()).has_value();
  };
  return there.contains("answers") && there.contains("state") && is_as("state", is_state) &&
         is_as("answers", [](const Json& value) { return value.is_boolean(); }) &&
         is_as("steps", is_count) && is_as("nonfinite_steps", is_count) &&
         is_as("incidents_total", is_count) && is_as("open_incidents", is_list_of_texts);
}

void add_of_other_node(Json& entry, const Json& there) {
  if (!is_sound(there)) return;
  for (const char* key : kOfStep)
    if (const auto found = there.find(key); found != there.end() && is_number(*found))
      entry[key] = *found;
  for (const char* key : kOfStatus) copy(entry, there, key);
  entry["state"] = there.at("state");
}

/// What comes from another process: nothing that is nested deeper than a list of ranks is.
Json parse_shallow(const std::string& text) {
  constexpr int kDeepest = 4;
  return Json::parse(
      text, [](int depth, Json::parse_event_t, Json&) { return depth <= kDeepest; },
      /*allow_exceptions=*/false);
}

std::int32_t rank_of(const Json& entry) { return entry.at("rank").get<std::int32_t>(); }

bool is_over(const Json& entry) {
  return entry.at("state") == record::name_of(record::RunState::finished) ||
         entry.at("state") == record::name_of(record::RunState::failed);
}

/// Whether the host of a URL http://host:port is the machine itself, whichever that is.
bool is_loopback_url(std::string_view url) {
  const std::size_t begin = url.find("://") + 3;
  const std::size_t end = url.rfind(':');
  std::string_view host = url.substr(begin, end > begin ? end - begin : std::string_view::npos);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return is_loopback(host);
}

/// The node's URL in that of a rank, http://host:port/rank/N; empty: its port is the rank's own.
std::string node_of(const Json& entry) {
  const auto& url = entry.at("url").get_ref<const std::string&>();
  const std::size_t end = url.rfind("/rank/");
  if (end == std::string::npos) return {};
  std::string node = url.substr(0, end);
  return url == url_of_rank(node, rank_of(entry)) ? node : std::string();
}

}  // namespace

std::optional<RanksAnswer> RanksAnswer::read(const std::string& ranks, std::string url,
                                             std::string host) try {
  Json json = Json::parse(ranks);
  (void)json.at("world_size").get<std::int32_t>();
  for (const Json& entry : json.at("ranks")) {
    (void)node_of(entry);
    (void)is_over(entry);
    (void)entry.at("host");
  }
  return RanksAnswer(std::move(json), std::move(url), std::move(host));
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
  for (const Json& entry : json_.at("ranks"))
    if (std::string node = node_of(entry); is_asked(entry, node)) urls.push_back(std::move(node));
  std::ranges::sort(urls);
  const auto same = std::ranges::unique(urls);
  urls.erase(same.begin(), same.end());
  return urls;
}

/// A rank that is over, or of a larger attempt before, may have left an address that is another program's by now; and
/// 127.0.0.1 is another machine's only for itself.
bool RanksAnswer::is_asked(const Json& entry, const std::string& node) const {
  if (node.empty() || node == url_ || is_over(entry)) return false;
  if (rank_of(entry) >= json_.at("world_size").get<std::int32_t>()) return false;
  return !is_loopback_url(node) || entry.at("host") == host_;
}

void RanksAnswer::add_others(const std::map<std::string, OtherNodes::Answer>& answers) {
  std::map<std::string, Json> read;
  for (const auto& [url, answer] : answers)
    read[url] = answer.is_there ? parse_shallow(answer.ranks) : Json();
  for (Json& entry : json_.at("ranks")) {
    const std::string node = node_of(entry);
    const auto answer = read.find(node);
    if (answer == read.end() || !is_asked(entry, node)) continue;
    entry["answers"] = false;
    try {
      if (answer->second.at("run") != json_.at("run")) continue;  // another one has the port now
      for (const Json& there : answer->second.at("ranks"))
        if (there.at("rank") == entry.at("rank") && there.at("url") == entry.at("url"))
          add_of_other_node(entry, there);
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
