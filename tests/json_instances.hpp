#pragma once
// nlohmann's JSON as most tests use it, compiled once for all of them, in json_instances.cpp. One of their
// precompiled headers.
#include <nlohmann/json.hpp>
#include <string>

namespace gradvane::test {
using JsonText = nlohmann::detail::iterator_input_adapter<std::string::const_iterator>;
}  // namespace gradvane::test

extern template class nlohmann::basic_json<>;
extern template class nlohmann::detail::serializer<nlohmann::json>;
extern template class nlohmann::detail::parser<nlohmann::json, gradvane::test::JsonText>;
extern template class nlohmann::detail::lexer<nlohmann::json, gradvane::test::JsonText>;
