#include "exporters/sync_report.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "exporters/record_json.hpp"
#include "exporters/step_log.hpp"
#include "exporters/sync_json.hpp"

namespace gradvane::exporters {

namespace fs = std::filesystem;

namespace {

fs::path file_for(const fs::path& path, const record::RunInfo& run) {
  std::error_code unused;
  if (!path.has_filename() || fs::is_directory(path, unused))
    return path / ("syncs." + std::to_string(run.pid) + ".json");
  return rank_path(path, run.rank, run.world_size);
}

}  // namespace

std::string write_sync_report(const fs::path& path, const record::SyncSummary& syncs,
                              const record::RunInfo& run) noexcept try {
  const fs::path whole = file_for(path, run);
  const fs::path beside = whole.string() + "." + std::to_string(run.pid) + ".new";
  {
    errno = 0;
    std::ofstream file(beside);
    file << to_text(to_json(syncs, run)) << '\n';
    file.close();
    if (!file) {
      const std::string why = std::strerror(errno);
      std::error_code unused;
      fs::remove(beside, unused);
      return "cannot write " + beside.string() + ": " + why;
    }
  }
  std::error_code error;
  fs::rename(beside, whole, error);
  if (!error) return {};
  std::error_code unused;
  fs::remove(beside, unused);
  return "cannot write " + whole.string() + ": " + error.message();
} catch (...) {
  return "no memory";
}

}  // namespace gradvane::exporters
