#pragma once
// /api/v1/ranks of a node: where the ranks of the run are, and how each of them is.
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "exporters/node/other_nodes.hpp"

namespace gradvane::exporters {

/// Text from other processes never throws here: what no rank and no node writes is left out.
class RanksAnswer {
 public:
  /// Absent if `ranks` is not what a rank answers to /api/v1/ranks. Throws std::bad_alloc only, as all here.
  /// @param url   of the node
  /// @param host  its name, as RunInfo::host
  [[nodiscard]] static std::optional<RanksAnswer> read(const std::string& ranks, std::string url,
                                                       std::string host);

  /// Adds to each rank of this node what its status says, or that it does not answer.
  /// @param statuses  what ranks answer to /api/v1/status, by rank
  void add_statuses(const std::map<std::int32_t, std::string>& statuses);
  /// The URLs of the other nodes that may be asked.
  [[nodiscard]] std::vector<std::string> other_nodes() const;
  /// The same for the ranks of other nodes, as these say.
  void add_others(const std::map<std::string, OtherNodes::Answer>& answers);
  void leave_out_others();

  [[nodiscard]] std::string text() const;

 private:
  using Json = nlohmann::ordered_json;
  RanksAnswer(Json json, std::string url, std::string host)
      : json_(std::move(json)), url_(std::move(url)), host_(std::move(host)) {}
  [[nodiscard]] bool is_asked(const Json& entry, const std::string& node) const;

  Json json_;
  std::string url_;
  std::string host_;
};

}  // namespace gradvane::exporters
