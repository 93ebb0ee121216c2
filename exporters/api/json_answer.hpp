#pragma once
// What the routes of the API share: an answer in JSON, and one that says why there is none.
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "exporters/http/http_message.hpp"
#include "exporters/http/query.hpp"
#include "exporters/json/record_json.hpp"
#include "record/run/run_info.hpp"

namespace gradvane::exporters {

/// What was asked for by name is not there; what() says so, for a person.
class NotThere : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[nodiscard]] inline HttpResponse json_answer(std::string text, int status = 200) {
  text += '\n';
  return {.status = status, .content_type = "application/json", .body = std::move(text)};
}

/// `make` reads the query and gives the text; what it refuses becomes the answer.
template <typename Make>
[[nodiscard]] HttpResponse answer_or_explain(Make make) {
  const auto refusal = [](const std::exception& error, int status) {
    return json_answer(to_text({{"error", error.what()}}), status);
  };
  static_assert(std::is_same_v<decltype(make()), std::string>);  // JSON would convert by itself
  try {
    return json_answer(make());
  } catch (const BadQuery& error) {
    return refusal(error, 400);
  } catch (const NotThere& error) {
    return refusal(error, 404);
  }
}

/// `run` is null before the run began.
inline void put_identity(nlohmann::ordered_json& json, const record::RunInfo* run) {
  if (run == nullptr) return;
  json["run"] = run->run;
  json["rank"] = run->rank;
}

/// ?optimizer=, if it is there. Throws BadQuery.
inline std::optional<std::int32_t> optimizer_in(const Query& asked) {
  constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
  if (!asked.has("optimizer")) return std::nullopt;
  return static_cast<std::int32_t>(asked.number("optimizer", 0, 0, kMost));
}

}  // namespace gradvane::exporters
