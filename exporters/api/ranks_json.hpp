#pragma once
// The other processes of the run, as far as this machine knows of them.
#include <filesystem>
#include <string_view>

#include "exporters/http/http_message.hpp"
#include "record/run/run_info.hpp"

namespace gradvane::exporters {

/// The endpoint files of the run in `directory`, by rank. Those of other machines are not there; one that
/// cannot be read, or is of another run, is left out. @param run  null before the run began
[[nodiscard]] HttpResponse ranks_json(const record::RunInfo* run,
                                      const std::filesystem::path& directory,
                                      std::string_view query);

}  // namespace gradvane::exporters
