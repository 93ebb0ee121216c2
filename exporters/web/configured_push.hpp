#pragma once
// How alerts reach an Alertmanager behind TLS, or one that asks who sends.
#include <filesystem>

#include "exporters/alert_push/push_access.hpp"

namespace gradvane::exporters {

/// Reads its files again for each request.
class ConfiguredPush final : public PushAccess {
 public:
  /// Throws std::runtime_error, with what to change: if the files cannot be used, or TLS is not there. Reads the
  /// environment.
  /// @param file  http config; empty: TLS as the system has it, and no authorization
  ConfiguredPush(const AlertUrl& url, const std::filesystem::path& file);

  [[nodiscard]] Way way(const AlertUrl& url) override;

 private:
  std::filesystem::path file_;
  std::filesystem::path system_ca_;  ///< empty: none was found
};

}  // namespace gradvane::exporters
