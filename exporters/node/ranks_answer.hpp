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

/// Text from other processes never throws here: what is not as a rank or a node writes it is left out.
class RanksAnswer {
 public:
  /// Absent if `ranks` is not what a rank answers to /api/v1/ranks. Throws std::bad_alloc only, as all here.
  /// @param url  of the node
  [[nodiscard]] static std::optional<RanksAnswer> read(const std::string& ranks, std::string url);

  /// Adds to each rank of this node what its status says, or that it does not answer.
  /// @param statuses  what ranks answer to /api/v1/status, by rank
  void add_statuses(const std::map<std::int32_t, std::string>& statuses);
  /// The URLs of the other nodes.
  [[nodiscard]] std::vector<std::string> other_nodes() const;
  /// The same for the ranks of other nodes, as these told it.
  void add_others(const std::map<std::string, OtherNodes::Told>& told);
  void leave_out_others();

  [[nodiscard]] std::string text() const;

 private:
  using Json = nlohmann::ordered_json;
  RanksAnswer(Json json, std::string url) : json_(std::move(json)), url_(std::move(url)) {}

  Json json_;
  std::string url_;
};

}  // namespace gradvane::exporters
