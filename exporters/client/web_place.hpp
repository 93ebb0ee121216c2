#pragma once
// A host and a port, as a URL names them.
#include <cstdint>
#include <string>
#include <string_view>

namespace gradvane::exporters {

struct WebPlace {
  std::string host;  ///< a name, or an address without brackets
  std::uint16_t port = 80;
  std::string authority;  ///< as the Host header has it
};

/// Takes "host", "host:port" or "[address]:port". Throws std::invalid_argument, with what is wrong.
/// @param usual_port  where it names none
[[nodiscard]] WebPlace parse_web_place(std::string_view authority, std::uint16_t usual_port);

}  // namespace gradvane::exporters
