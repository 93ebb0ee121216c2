#include "exporters/web/configured_access.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace gradvane::exporters {
namespace {

constexpr std::chrono::seconds kLookEvery{1};

}  // namespace

ConfiguredAccess::ConfiguredAccess(const std::filesystem::path& file,
                                   std::function<void(const std::string&)> note)
    : file_(std::filesystem::absolute(file)), note_(std::move(note)) {
  WebConfig config = read_web_config(file_);
  taken_ = seen_ = marks_of(config.files);
  next_look_ = Clock::now() + kLookEvery;
  take(std::move(config));
}

/// All of it, or nothing.
void ConfiguredAccess::take(WebConfig config) {
  std::unique_ptr<TlsServer> server;
  std::optional<PasswordCheck> passwords;
  if (config.tls) {
    std::string error;
    server = tls_library().server(*config.tls, error);
    if (!server)
      throw std::runtime_error("web_config " + file_.string() + ": tls_server_config: " + error);
  }
  if (!config.users.empty()) passwords.emplace(tls_library(), config.users);
  server_ = std::move(server);
  passwords_.reset();
  if (passwords) passwords_.emplace(*std::move(passwords));
  config.tls.reset();  // the server has the key now
  config_ = std::move(config);
  requests_ = config_.limit ? config_.limit->burst : 0;
  counted_ = Clock::now();
}

void ConfiguredAccess::look() {
  const auto now = Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kLookEvery;
  const auto marks = marks_of(config_.files);
  const bool is_settled = marks == std::exchange(seen_, marks);
  // While a file is wrong, others that it names may be what is missing, and are not looked at here.
  if ((marks == taken_ && error_.empty()) || !is_settled) return;
  taken_ = marks;
  try {
    WebConfig config = read_web_config(file_);
    if (config.tls.has_value() != has_tls())
      throw std::runtime_error("web_config " + file_.string() +
                               ": TLS cannot be switched on or off while the run lasts");
    auto marks_now = marks_of(config.files);  // which may be other files than before
    take(std::move(config));
    taken_ = seen_ = std::move(marks_now);
    error_.clear();
    note_("web_config " + file_.string() + " has changed and is in force");
  } catch (const std::exception& error) {
    if (std::exchange(error_, error.what()) == error.what()) return;
    note_(error_ + "; what was in force stays");
  }
}

bool ConfiguredAccess::is_within_limit() {
  if (!config_.limit) return true;
  const auto now = Clock::now();
  const double per_request = static_cast<double>(config_.limit->interval.count());
  const double passed = std::chrono::duration<double, std::nano>(now - counted_).count();
  counted_ = now;
  requests_ = std::min<double>(config_.limit->burst, requests_ + passed / per_request);
  if (requests_ < 1) return false;
  requests_ -= 1;
  return true;
}

WebAccess::Verdict ConfiguredAccess::admits(std::string_view peer, std::string_view authorization) {
  return passwords_->admits(peer, authorization, Clock::now());
}

std::vector<ConfiguredAccess::Mark> ConfiguredAccess::marks_of(
    const std::vector<std::filesystem::path>& files) {
  std::vector<Mark> marks;
  for (const auto& file : files) {
    struct stat found{};
    Mark mark;
    if (::stat(file.c_str(), &found) == 0)
      mark = {.device = found.st_dev,
              .number = found.st_ino,
              .size = found.st_size,
              .seconds = found.st_mtim.tv_sec,
              .nanoseconds = found.st_mtim.tv_nsec};
    marks.push_back(mark);
  }
  return marks;
}

}  // namespace gradvane::exporters
