#include "exporters/http/access/access_token.hpp"

#include <algorithm>
#include <cstddef>

#include "exporters/http/access/authorization.hpp"

namespace gradvane::exporters {
namespace {

namespace http = boost::beast::http;
using Request = http::request_header<>;

constexpr std::string_view kScheme = "bearer";
constexpr std::string_view kParameter = "token=";

unsigned byte_of(char c) noexcept { return static_cast<unsigned char>(c); }

bool is_same(std::string_view given, std::string_view wanted) noexcept {
  unsigned difference = given.size() == wanted.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i)
    difference |= byte_of(given[i]) ^ byte_of(wanted[i % wanted.size()]);
  return difference == 0;
}

/// Calls `each` with the parts of `text` between separators.
template <typename Each>
void split(std::string_view text, char separator, Each each) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    each(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

bool has_bearer(const Request& request, std::string_view token) {
  const auto value = request[http::field::authorization];
  const auto given = credentials_after(kScheme, {value.data(), value.size()});
  return given && is_same(*given, token);
}

bool has_cookie(const Request& request, const AccessToken& token) {
  bool has = false;
  const auto [begin, end] = request.equal_range(http::field::cookie);
  for (auto field = begin; field != end; ++field)
    split({field->value().data(), field->value().size()}, ';', [&](std::string_view pair) {
      pair = without_blanks(pair);
      if (pair.size() <= token.cookie.size() || !pair.starts_with(token.cookie) ||
          pair[token.cookie.size()] != '=')
        return;
      has |= is_same(pair.substr(token.cookie.size() + 1), token.text);
    });
  return has;
}

/// The target without its tokens; absent unless one of them is right.
std::optional<std::string> without_token(std::string_view target, std::string_view token) {
  const std::size_t question = target.find('?');
  if (question == std::string_view::npos) return std::nullopt;
  bool has = false;
  std::string rest;
  split(target.substr(question + 1), '&', [&](std::string_view part) {
    if (part.starts_with(kParameter))
      has |= is_same(part.substr(kParameter.size()), token);
    else
      rest.append(rest.empty() ? "?" : "&").append(part);
  });
  if (!has) return std::nullopt;
  return std::string(target.substr(0, question)) + rest;
}

}  // namespace

std::optional<HttpResponse> token_refusal(const Request& request, std::string_view target,
                                          const AccessToken& token) {
  if (token.text.empty()) return std::nullopt;
  // Two slashes at the beginning would be the name of another machine.
  if (auto rest = without_token(target, token.text);
      rest && rest->starts_with('/') && !rest->starts_with("//"))
    return HttpResponse{.status = 303,
                        .body = "the token is taken\n",
                        .location = *std::move(rest),
                        .cookie = token.cookie + '=' + token.text +
                                  "; Path=/; HttpOnly; SameSite=Strict" +
                                  (token.is_secure ? "; Secure" : "")};
  if (has_bearer(request, token.text) || has_cookie(request, token)) return std::nullopt;
  return HttpResponse{
      .status = 401,
      .body =
          "This endpoint asks for a token: `gradvane open RUN` on the machine of the run has it, "
          "and so has the run's endpoint file. A browser gives it as ?token=..., others send "
          "`Authorization: Bearer ...`.\n"};
}

}  // namespace gradvane::exporters
