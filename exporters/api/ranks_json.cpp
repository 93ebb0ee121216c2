#include "exporters/api/ranks_json.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "exporters/api/json_answer.hpp"
#include "exporters/files/private_directory.hpp"
#include "exporters/files/safe_file.hpp"

namespace gradvane::exporters {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::size_t kLongestFile = 64UL * 1024;
constexpr std::size_t kMostEndpointFiles = 8192;

/// A page makes a link of it, and a `javascript:` must not become one.
bool is_web_address(const std::string& url) {
  return url.starts_with("http://") || url.starts_with("https://");
}

/// Null where it is no endpoint file of this run.
Json read_endpoint(int directory, const std::string& name, const record::RunInfo& run) {
  const auto text = read_regular(directory, name, kLongestFile, ::geteuid());
  if (!text) return {};
  const Json there = Json::parse(*text, nullptr, false);
  if (!there.is_object() || there.value("run", Json()) != run.run) return {};
  constexpr std::array<const char*, 7> kKeys{"rank", "url",        "state",  "pid",
                                             "host", "local_rank", "started"};
  Json entry = Json::object();
  for (const char* key : kKeys) {
    if (!there.contains(key)) return {};
    entry[key] = there[key];
  }
  if (!entry["rank"].is_number_integer() || !entry["url"].is_string()) return {};
  if (!is_web_address(entry["url"].get<std::string>())) return {};
  entry["is_this"] = entry["rank"] == run.rank && entry["pid"] == run.pid;
  return entry;
}

std::vector<Json> endpoints_in(const fs::path& path, const record::RunInfo& run) {
  std::vector<Json> found;
  const auto directory = open_named_directory(path, ::geteuid(), Missing::stays);
  if (!directory.descriptor.is_open()) return found;
  for (const std::string& name : names_in(directory.descriptor.get(), kMostEndpointFiles)) {
    if (!name.starts_with("endpoint.rank") || !name.ends_with(".json")) continue;
    if (Json entry = read_endpoint(directory.descriptor.get(), name, run); !entry.is_null())
      found.push_back(std::move(entry));
  }
  std::ranges::sort(found, {}, [](const Json& entry) { return entry["rank"].get<std::int64_t>(); });
  return found;
}

}  // namespace

HttpResponse ranks_json(const record::RunInfo* run, const fs::path& directory,
                        std::string_view query) {
  return answer_or_explain([&] {
    const Query none(query, {});
    Json json = Json::object();
    put_identity(json, run);
    json["world_size"] = run == nullptr ? 1 : run->world_size;
    json["ranks"] = Json::array();
    if (run != nullptr && !directory.empty())
      for (Json& entry : endpoints_in(directory, *run)) json["ranks"].push_back(std::move(entry));
    return to_text(json);
  });
}

}  // namespace gradvane::exporters
