#include "exporters/step_log/sync_report.hpp"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "exporters/files/file_signals.hpp"
#include "exporters/files/safe_file.hpp"
#include "exporters/json/record_json.hpp"
#include "exporters/json/sync_json.hpp"
#include "exporters/step_log/step_log.hpp"

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
  const fs::path folder = whole.has_parent_path() ? whole.parent_path() : ".";
  const auto because = [&] {
    return "cannot write " + whole.string() + ": " + std::strerror(errno);
  };
  const OwnDescriptor directory(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open()) return because();
  const std::string text = to_text(to_json(syncs, run)) + '\n';
  const std::array<std::string_view, 1> parts{text};
  const FileSignalsBlocked signals;
  // The user named the file: the umask says who may read it.
  const std::string name = whole.filename().string();
  return write_whole_file(directory.get(), name, parts, 0644) ? std::string() : because();
} catch (...) {
  return "no memory";
}

}  // namespace gradvane::exporters
