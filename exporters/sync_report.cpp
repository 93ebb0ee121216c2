#include "exporters/sync_report.hpp"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "exporters/record_json.hpp"
#include "exporters/step_log.hpp"
#include "exporters/sync_json.hpp"

namespace gradvane::exporters {

namespace fs = std::filesystem;

std::string write_sync_report(const fs::path& path, const record::SyncSummary& syncs,
                              const record::RunInfo& run) noexcept try {
  const fs::path whole = rank_path(path, run.rank, run.world_size);
  const fs::path beside = whole.string() + "." + std::to_string(run.pid) + ".new";
  {
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
  return error ? "cannot write " + whole.string() + ": " + error.message() : std::string();
} catch (...) {
  return "no memory";
}

}  // namespace gradvane::exporters
