#pragma once
// What a web config file asks for, as it is now.
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exporters/web/password_check.hpp"
#include "exporters/web/web_config.hpp"

namespace gradvane::exporters {

/// The file and those that it names are looked at once per second, and are taken when they have changed, at the latest with
/// the second look since: an editor may write in parts. Certificates are renewed while a run lasts. A file that is wrong
/// changes nothing. TLS can be neither switched on nor off, as the address of the endpoint says which, and a file that
/// lets everyone read does not take the place of one that does not.
class ConfiguredAccess final : public WebAccess {
 public:
  /// Throws std::runtime_error, with what to change.
  /// @param note  called on the server's thread, with what has become of a changed file
  ConfiguredAccess(const std::filesystem::path& file, std::function<void(const std::string&)> note);

  [[nodiscard]] bool has_tls() const noexcept override { return server_ != nullptr; }
  void look() override;
  [[nodiscard]] std::unique_ptr<TlsSession> session() override { return server_->session(); }
  [[nodiscard]] bool is_within_limit() override;
  [[nodiscard]] bool has_users() const noexcept override { return passwords_ != nullptr; }
  [[nodiscard]] Verdict admits(std::string_view peer, std::string_view authorization) override;
  [[nodiscard]] const Headers& headers() const noexcept override { return config_.headers; }

 private:
  using Clock = std::chrono::steady_clock;

  void take(WebConfig config);

  std::filesystem::path file_;
  std::function<void(const std::string&)> note_;
  WebConfig config_;
  std::unique_ptr<TlsServer> server_;
  std::unique_ptr<PasswordCheck> passwords_;  ///< null: no users
  bool knows_readers_ = false;                ///< by a password, or by a certificate
  double requests_ = 0;                       ///< that may still come
  Clock::time_point counted_;
  std::vector<FileStamp> taken_;  ///< of what is in force, or was refused
  std::vector<FileStamp> seen_;   ///< at the last look
  std::string error_;             ///< why the file as it is now is not in force; empty: it is
  Clock::time_point next_look_;
};

}  // namespace gradvane::exporters
