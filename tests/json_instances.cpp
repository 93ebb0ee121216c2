#include "tests/json_instances.hpp"

template class nlohmann::basic_json<>;
template class nlohmann::detail::serializer<nlohmann::json>;
template class nlohmann::detail::parser<nlohmann::json, gradvane::test::JsonText>;
template class nlohmann::detail::lexer<nlohmann::json, gradvane::test::JsonText>;
