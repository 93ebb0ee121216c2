#pragma once
// A run directory for tests.
#include <filesystem>
#include <memory>
#include <string>

#include "exporters/files/run_directory.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters::fakes {

/// `path`, claimed for the made-up run; or nothing, where it cannot be had.
inline std::shared_ptr<RunDirectory> claimed(const std::filesystem::path& path,
                                             const std::string& lock_name = "rank0.lock") {
  return std::make_shared<RunDirectory>(RunDirectoryOptions{
      .named = path, .run = fake_run().run, .lock_name = lock_name, .has_fallback = false});
}

}  // namespace gradvane::exporters::fakes
