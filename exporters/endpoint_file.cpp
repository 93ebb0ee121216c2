#include "exporters/endpoint_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "exporters/file_word.hpp"
#include "exporters/record_json.hpp"
#include "record/names.hpp"

namespace gradvane::exporters {

namespace fs = std::filesystem;

namespace {

std::string because(const std::string& what, const fs::path& path) {
  return what + " " + path.string() + ": " + std::strerror(errno);
}

/// Makes what is missing of `directory`, private to the user. Returns what is wrong with it.
std::string claim_directory(const fs::path& directory) {
  fs::path so_far;
  for (const fs::path& part : fs::absolute(directory).lexically_normal()) {
    so_far /= part;
    if (::mkdir(so_far.c_str(), 0700) == 0) continue;
    // Read-only and automounted parents answer otherwise than EEXIST, and are fine when they are there.
    struct stat there{};
    if (::stat(so_far.c_str(), &there) != 0 || !S_ISDIR(there.st_mode)) {
      return because("cannot make the run directory", so_far);
    }
  }
  struct stat status{};
  if (::stat(directory.c_str(), &status) != 0) return because("cannot look at", directory);
  if (status.st_uid != ::geteuid()) {
    return "the run directory " + directory.string() + " belongs to another user";
  }
  return {};
}

}  // namespace

fs::path default_run_directory(std::string_view run) {
  const char* temporary = std::getenv("TMPDIR");
  const fs::path base = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
  return base / ("gradvane-" + std::to_string(::geteuid())) / file_word(run);
}

EndpointFile::EndpointFile(fs::path directory, const record::RunInfo& run)
    : directory_(std::move(directory)),
      path_(directory_ / ("endpoint.rank" + std::to_string(run.rank) + ".json")),
      run_(run) {}

std::string EndpointFile::write(std::string_view url, record::RunState state) noexcept try {
  if (!written_.empty() && was_taken_over()) return {};
  if (std::string wrong = claim_directory(directory_); !wrong.empty()) return wrong;
  const nlohmann::ordered_json json{
      {"url", url},
      {"pid", run_.pid},
      {"run", run_.run},
      {"rank", run_.rank},
      {"local_rank", run_.local_rank},
      {"world_size", run_.world_size},
      {"state", name_of(state)},
      {"version", run_.version},
      {"started", to_json(run_.start_time)},
  };
  const std::string text = to_text(json) + '\n';
  std::string wrong = write_text(text);
  if (wrong.empty()) written_ = text;
  return wrong;
} catch (const std::exception& error) {
  return std::string(error.what()).substr(0, 200);
}

std::string EndpointFile::write_text(const std::string& text) const {
  // A name of its own, since two runs of one process may write at the same time. Mode 0600.
  std::string temporary = (directory_ / ('.' + path_.filename().string() + ".XXXXXX")).string();
  const int descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return because("cannot create a file in", directory_);
  const auto written = ::write(descriptor, text.data(), text.size());
  const bool is_whole = written == static_cast<ssize_t>(text.size());
  if (::close(descriptor) == 0 && is_whole && ::rename(temporary.c_str(), path_.c_str()) == 0) {
    return {};
  }
  std::string wrong = because("cannot write", path_);
  ::unlink(temporary.c_str());
  return wrong;
}

bool EndpointFile::was_taken_over() const {
  std::ifstream file(path_);
  if (!file) return false;  // gone, which is nobody's claim
  const std::string there(std::istreambuf_iterator<char>(file), {});
  return there != written_;
}

}  // namespace gradvane::exporters
