#include "exporters/web/configured_access.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace gradvane::exporters {
namespace {

constexpr std::chrono::seconds kLookEvery{1};

/// As they were before they were read.
std::vector<FileStamp> stamps_in(const StampedFiles& files) {
  std::vector<FileStamp> stamps;
  for (const auto& [file, stamp] : files) stamps.push_back(stamp);
  return stamps;
}

std::vector<FileStamp> stamps_now(const StampedFiles& files) {
  std::vector<FileStamp> stamps;
  for (const auto& [file, stamp] : files) stamps.push_back(stamp_of(file.string()));
  return stamps;
}

/// All are there, and none was written within the last second.
bool are_settled(const std::vector<FileStamp>& stamps) noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::ranges::all_of(stamps, [&](const FileStamp& stamp) {
    return stamp.is_there && now - std::chrono::nanoseconds(stamp.modified) > kLookEvery;
  });
}

}  // namespace

ConfiguredAccess::ConfiguredAccess(const std::filesystem::path& file,
                                   std::function<void(const std::string&)> note)
    : file_(std::filesystem::absolute(file)), note_(std::move(note)) {
  WebConfig config = read_web_config(file_);
  taken_ = seen_ = stamps_in(config.files);
  next_look_ = Clock::now() + kLookEvery;
  take(std::move(config));
}

/// All of it, or nothing.
void ConfiguredAccess::take(WebConfig config) {
  std::unique_ptr<TlsServer> server;
  std::unique_ptr<PasswordCheck> passwords;
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
  if (!config.users.empty() && !keeps_users)
    passwords = std::make_unique<PasswordCheck>(tls_library(), config.users);
  server_ = std::move(server);
  if (!keeps_users) passwords_ = std::move(passwords);
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
  const auto stamps = stamps_now(config_.files);
  const bool is_settled = stamps == std::exchange(seen_, stamps) || are_settled(stamps);
  // While a file is wrong, others that it names may be what is missing, and are not looked at here.
  if ((stamps == taken_ && error_.empty()) || !is_settled) return;
  taken_ = stamps;
  try {
    WebConfig config = read_web_config(file_);
    if (config.tls.has_value() != has_tls())
      throw std::runtime_error("web_config " + file_.string() +
                               ": TLS cannot be switched on or off while the run lasts");
    auto stamps_of_these = stamps_in(config.files);  // other files than before, it may be
    take(std::move(config));
    taken_ = seen_ = std::move(stamps_of_these);
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

}  // namespace gradvane::exporters
