#include "agent/public/option_setters.hpp"

#include <arpa/inet.h>

#include <array>
#include <stdexcept>
#include <string>

#include "collectors/grouping.hpp"
#include "detectors/judge.hpp"
#include "exporters/alert_push/alert_labels.hpp"
#include "exporters/alert_push/alert_url.hpp"
#include "exporters/files/run_token.hpp"
#include "exporters/http/access/host_rule.hpp"
#include "exporters/http/unix_address.hpp"

namespace gradvane::agent {
namespace {

/// `parse` throws for what it refuses.
template <typename Parse>
bool is_allowed(std::string_view value, Parse parse) {
  try {
    (void)parse(value);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

}  // namespace

bool set_groups(Options& options, std::string_view value) {
  if (!is_allowed(value, collectors::check_group_rule)) return false;
  return options.groups = value, true;
}

bool set_address(Options& options, std::string_view value) {
  const std::string address(value.substr(0, value.find('%')));  // "fe80::1%eth0" has a zone
  std::array<unsigned char, sizeof(in6_addr)> parsed{};
  if (::inet_pton(AF_INET, std::string(value).c_str(), parsed.data()) != 1 &&
      ::inet_pton(AF_INET6, address.c_str(), parsed.data()) != 1 && value != "localhost" &&
      !exporters::is_unix_address(value))
    return false;
  return options.address = value, true;
}

bool set_token(Options& options, std::string_view value) {
  if (!value.empty() && value != exporters::kTokenOfDirectory && !exporters::is_access_token(value))
    return false;
  return options.token = value, true;
}

bool set_allowed_hosts(Options& options, std::string_view value) {
  if (!exporters::are_host_names(value)) return false;
  return options.allowed_hosts = value, true;
}

bool set_alert_url(Options& options, std::string_view value) {
  if (!value.empty() && !is_allowed(value, exporters::parse_alert_url)) return false;
  return options.alertmanager_url = value, true;
}

bool set_alert_labels(Options& options, std::string_view value) {
  if (!is_allowed(value, exporters::parse_alert_labels)) return false;
  return options.alertmanager_labels = value, true;
}

bool set_detect(Options& options, std::string_view value) {
  detectors::Judged judged{};
  if (!detectors::parse_judged(value, judged).empty()) return false;
  return options.detect = value, true;
}

}  // namespace gradvane::agent
