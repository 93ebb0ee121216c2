#pragma once
// By which names a request may call this server.
//
// A web page can point a name of its own at this machine's address (DNS rebinding). Its browser then takes
// our answers for that page's own and lets it read them. The page cannot do so with an IP address, nor with
// a name that its author does not own; so only those are answered.
#include <string>
#include <string_view>
#include <vector>

namespace gradvane::exporters {

struct HostRule {
  /// In lower case, without a port. `*.x` stands for every name below x, and `*` for every name.
  std::vector<std::string> names;
  /// Paths that are answered under any name.
  std::vector<std::string> open_paths = {};
};

/// `localhost`, `*.localhost`, what `address` and `host` say, and `allowed`. Where `address` is not
/// loopback, also the names of this machine, and /metrics and /-/... under any name: Prometheus scrapes by
/// whatever name its service discovery gives.
/// @param host     what this machine is called, beside what the system says; may be empty
/// @param allowed  names with commas between them
[[nodiscard]] HostRule host_rule(std::string_view address, std::string_view host,
                                 std::string_view allowed);

/// `address` is one that IPv4, IPv6 or "localhost" gives to this machine alone, or a unix socket.
[[nodiscard]] bool is_loopback(std::string_view address);

/// The short name, and the name in each domain that the resolver searches.
/// @param resolver_settings  text of /etc/resolv.conf
[[nodiscard]] std::vector<std::string> names_of_machine(std::string_view host,
                                                        std::string_view resolver_settings);

/// @param field  the value of the Host header. An IP address is always answered.
[[nodiscard]] bool is_answered(const HostRule& rule, std::string_view field, std::string_view path);

/// False where a part is no name, `*` or `*.name`: with a port, a path, or a space in it.
[[nodiscard]] bool are_host_names(std::string_view allowed);

}  // namespace gradvane::exporters
