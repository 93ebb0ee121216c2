#pragma once
// nlohmann's JSON as most tests use it, compiled once for all of them, in json_instances.cpp. One of their
// precompiled headers.
#include <nlohmann/json.hpp>
#include <string>

/// `how`: extern, or nothing.
#define GRADVANE_JSON_INSTANCES(how)                                                          \
  how template class nlohmann::basic_json<>;                                                  \
  how template class nlohmann::detail::serializer<nlohmann::json>;                            \
  how template class nlohmann::detail::parser<                                                \
      nlohmann::json, nlohmann::detail::iterator_input_adapter<std::string::const_iterator>>; \
  how template class nlohmann::detail::lexer<                                                 \
      nlohmann::json, nlohmann::detail::iterator_input_adapter<std::string::const_iterator>>

GRADVANE_JSON_INSTANCES(extern);
