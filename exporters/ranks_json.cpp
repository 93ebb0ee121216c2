#include "exporters/ranks_json.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <vector>

#include "exporters/json_answer.hpp"

namespace gradvane::exporters {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::size_t kLongestFile = 64UL * 1024;

/// Null where it is no endpoint file of this run.
Json read_endpoint(const fs::path& path, const record::RunInfo& run) {
  std::ifstream file(path);
  std::string text(kLongestFile, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  const Json there = Json::parse(text, nullptr, false);
  if (!there.is_object() || there.value("run", Json()) != run.run) return {};
  constexpr std::array<const char*, 6> kKeys{"rank", "url",        "state",
                                             "pid",  "local_rank", "started"};
  Json entry = Json::object();
  for (const char* key : kKeys) {
    if (!there.contains(key)) return {};
    entry[key] = there[key];
  }
  if (!entry["rank"].is_number_integer() || !entry["url"].is_string()) return {};
  entry["is_this"] = entry["rank"] == run.rank && entry["pid"] == run.pid;
  return entry;
}

std::vector<Json> endpoints_in(const fs::path& directory, const record::RunInfo& run) {
  std::vector<Json> found;
  std::error_code error;
  for (fs::directory_iterator file(directory, error), end; !error && file != end;
       file.increment(error)) {
    const std::string name = file->path().filename().string();
    if (!name.starts_with("endpoint.rank") || !name.ends_with(".json")) continue;
    if (Json entry = read_endpoint(file->path(), run); !entry.is_null())
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
