#include "exporters/api/endpoint_file.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "exporters/files/file_signals.hpp"
#include "exporters/files/safe_file.hpp"
#include "exporters/json/record_json.hpp"
#include "record/names.hpp"

namespace gradvane::exporters {

EndpointFile::EndpointFile(std::shared_ptr<RunDirectory> directory, const record::RunInfo& run,
                           std::string node_url, std::string token, std::string socket)
    : directory_(std::move(directory)),
      name_("endpoint.rank" + std::to_string(run.rank) + ".json"),
      run_(run),
      node_url_(std::move(node_url)),
      token_(std::move(token)),
      socket_(std::move(socket)) {}

std::string EndpointFile::write(std::string_view url, record::RunState state) noexcept try {
  const int directory = directory_->use();
  if (directory < 0) {
    std::string why = directory_->note();
    return why.empty() ? "there is no run directory" : why;
  }
  if (!written_.empty() && was_taken_over(directory)) return {};
  nlohmann::ordered_json json{
      {"url", url},
      {"node_url", node_url_.empty() ? url : node_url_},
      {"host", run_.host},
      {"pid", run_.pid},
      {"run", run_.run},
      {"run_id", run_.run_id},
      {"rank", run_.rank},
      {"local_rank", run_.local_rank},
      {"world_size", run_.world_size},
      {"state", name_of(state)},
      {"version", run_.version},
      {"started", to_json(run_.start_time)},
  };
  if (!token_.empty()) json["token"] = token_;
  if (!socket_.empty()) json["socket"] = socket_;
  std::string text = to_text(json) + '\n';
  const FileSignalsBlocked signals;
  const std::array<std::string_view, 1> parts{text};
  if (!write_whole_file(directory, name_, parts, 0600))
    return "cannot write " + path().string() + ": " + std::strerror(errno);
  written_ = std::move(text);
  return {};
} catch (const std::exception& error) {
  return std::string(error.what()).substr(0, 200);
}

bool EndpointFile::was_taken_over(int directory) const {
  // More than we wrote is read as well, and then differs.
  const auto there = read_regular(directory, name_, written_.size() + 1, directory_->owner());
  if (there) return *there != written_;
  return errno == EFBIG;  // gone, or nothing that a run of ours wrote
}

}  // namespace gradvane::exporters
