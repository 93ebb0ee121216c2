#include "exporters/http/access/host_rule.hpp"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

#include "exporters/http/unix_address.hpp"

namespace gradvane::exporters {
namespace {

constexpr std::size_t kMostSettings = 64 * 1024;  ///< of /etc/resolv.conf

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

/// A full name may end with a dot.
std::string_view without_dot(std::string_view name) {
  if (name.ends_with('.')) name.remove_suffix(1);
  return name;
}

template <typename Take>
void each_part(std::string_view text, std::string_view separators, Take take) {
  while (!text.empty()) {
    const auto end = std::min(text.find_first_of(separators), text.size());
    if (end > 0) take(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// The host of `host:port`, of `[address]:port`, or of either without a port. A text that is none of
/// these comes back as it is, and is then no known name.
std::string_view without_port(std::string_view field) {
  if (field.starts_with('[')) {
    const auto end = field.find(']');
    return end == std::string_view::npos ? field : field.substr(1, end - 1);
  }
  const auto colon = field.find(':');
  if (colon == std::string_view::npos) return field;
  const std::string_view port = field.substr(colon + 1);
  const bool is_port = std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
  return is_port ? field.substr(0, colon) : field;
}

bool is_ip_address(std::string_view host) {
  const std::string text(host.substr(0, host.find('%')));  // "fe80::1%25eth0" has a zone
  std::array<unsigned char, sizeof(in6_addr)> parsed{};
  return ::inet_pton(AF_INET, text.c_str(), parsed.data()) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), parsed.data()) == 1;
}

bool is_name(std::string_view name, std::string_view pattern) {
  if (pattern == "*" || name == pattern) return true;
  return pattern.starts_with("*.") && name.size() >= pattern.size() &&
         name.ends_with(pattern.substr(1));
}

std::string resolver_settings() {
  std::ifstream file("/etc/resolv.conf");
  std::string text;
  text.resize(kMostSettings);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

bool is_loopback(std::string_view address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.") ||
         is_unix_address(address);
}

std::vector<std::string> names_of_machine(std::string_view host,
                                          std::string_view resolver_settings) {
  const std::string name = lower(without_dot(host));
  if (name.empty()) return {};
  const std::string brief = name.substr(0, name.find('.'));
  std::vector<std::string> names{name, brief};
  each_part(resolver_settings, "\n", [&](std::string_view line) {
    bool is_first = true;
    bool has_domains = false;
    each_part(line, " \t\r", [&](std::string_view word) {
      if (is_first) {
        has_domains = word == "search" || word == "domain";
      } else if (has_domains && !without_dot(word).empty()) {
        names.push_back(brief + '.' + lower(without_dot(word)));
      }
      is_first = false;
    });
  });
  return names;
}

HostRule host_rule(std::string_view address, std::string_view host, std::string_view allowed) {
  HostRule rule{.names = {"localhost", "*.localhost", lower(address)}};
  each_part(allowed, ", ",
            [&](std::string_view name) { rule.names.push_back(lower(without_dot(name))); });
  if (is_loopback(address)) return rule;
  std::array<char, 256> own{};
  if (::gethostname(own.data(), own.size() - 1) != 0) own[0] = '\0';
  const std::string settings = resolver_settings();
  for (const std::string_view name : {std::string_view(own.data()), host})
    std::ranges::move(names_of_machine(name, settings), std::back_inserter(rule.names));
  rule.open_paths = {"/metrics", "/-/healthy", "/-/ready"};
  return rule;
}

bool is_answered(const HostRule& rule, std::string_view field, std::string_view path) {
  const std::string name = lower(without_dot(without_port(field)));
  if (is_ip_address(name)) return true;
  if (std::ranges::any_of(rule.names, [&](const auto& known) { return is_name(name, known); }))
    return true;
  return std::ranges::find(rule.open_paths, path) != rule.open_paths.end();
}

bool are_host_names(std::string_view allowed) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  bool are_good = true;
  each_part(allowed, ", ", [&](std::string_view name) {
    if (name == "*") return;
    if (name.starts_with("*.")) name.remove_prefix(2);
    are_good = are_good && !name.empty() && !name.starts_with('.') &&
               name.find_first_not_of(kLetters) == std::string_view::npos;
  });
  return are_good;
}

}  // namespace gradvane::exporters
