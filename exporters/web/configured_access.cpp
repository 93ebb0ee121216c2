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
  auto [config, marks] = read(file_);
  taken_ = seen_ = std::move(marks);
  next_look_ = Clock::now() + kLookEvery;
  take(std::move(config));
}

std::pair<WebConfig, std::vector<ConfiguredAccess::Mark>> ConfiguredAccess::read(
    const std::filesystem::path& file) {
  const auto files = read_web_config(file).files;
  auto marks = marks_of(files);
  WebConfig config = read_web_config(file);
  if (config.files != files || marks_of(files) != marks) marks.clear();
  return {std::move(config), std::move(marks)};
}

/// All of it, or nothing.
void ConfiguredAccess::take(WebConfig config) {
  std::unique_ptr<TlsServer> server;
  std::optional<PasswordCheck> passwords;
  const bool keeps_users =
      passwords_ && config.users == config_.users;  // and what is known of them
  bool knows_readers = !config.users.empty();
  if (config.tls) {
    std::string error;
    server = tls_library().server(*config.tls, error);
    if (!server)
      throw std::runtime_error("web_config " + file_.string() + ": tls_server_config: " + error);
    knows_readers |= config.tls->client_auth == ClientAuth::require_and_verify;
  }
  if (knows_readers_ && !knows_readers)
    throw std::runtime_error("web_config " + file_.string() +
                             ": neither users nor clients' certificates are left, which would let "
                             "everyone read");
  if (!config.users.empty() && !keeps_users) passwords.emplace(tls_library(), config.users);
  server_ = std::move(server);
  if (!keeps_users) {
    passwords_.reset();
    if (passwords) passwords_.emplace(*std::move(passwords));
  }
  knows_readers_ = knows_readers;
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
  const bool is_settled = marks == std::exchange(seen_, marks) || are_settled(marks);
  // While a file is wrong, others that it names may be what is missing, and are not looked at here.
  if ((marks == taken_ && error_.empty()) || !is_settled) return;
  taken_ = marks;
  try {
    auto [config, marks_now] = read(file_);  // of other files than before, it may be
    if (config.tls.has_value() != has_tls())
      throw std::runtime_error("web_config " + file_.string() +
                               ": TLS cannot be switched on or off while the run lasts");
    take(std::move(config));
    taken_ = seen_ = std::move(marks_now);
    error_.clear();
    note_("web_config " + file_.string() + " has changed and is in force");
  } catch (const std::exception& error) {
    if (std::exchange(error_, error.what()) == error.what()) return;
    note_(error_ + "; what was in force stays");
  }
}

/// Nobody has written to a file within the last second.
bool ConfiguredAccess::are_settled(const std::vector<Mark>& marks) noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::ranges::all_of(marks, [&](const Mark& mark) {
    const auto written =
        std::chrono::seconds(mark.seconds) + std::chrono::nanoseconds(mark.nanoseconds);
    return mark != Mark() && written < now && now - written > kLookEvery;
  });
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
