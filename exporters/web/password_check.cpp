#include "exporters/web/password_check.hpp"

#include <algorithm>
#include <boost/beast/core/detail/base64.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "exporters/http/access/authorization.hpp"

namespace gradvane::exporters {
namespace {

using Verdict = WebAccess::Verdict;

constexpr std::string_view kScheme = "basic";
constexpr std::size_t kMostRemembered = 256;
constexpr std::size_t kMostPeers = 256;
constexpr std::size_t kSaltBytes = 32;
constexpr int kRest = 3;                // times as long as a check took, after it
constexpr std::size_t kCostBegins = 4;  // of $2b$10$
constexpr std::size_t kCostEnds = 6;
constexpr std::chrono::seconds kLongestCheck{1};
constexpr std::chrono::milliseconds kStillWaits{500};
constexpr std::chrono::seconds kTurnLasts{60};

/// `user:password`. Absent for what is no basic authentication.
std::optional<std::string> credentials_of(std::string_view authorization) {
  namespace base64 = boost::beast::detail::base64;
  const auto given = credentials_after(kScheme, authorization);
  if (!given) return std::nullopt;
  std::string text(base64::decoded_size(given->size() + 3), '\0');
  const auto [written, read] = base64::decode(text.data(), given->data(), given->size());
  text.resize(written);
  const bool is_whole = given->find_first_not_of('=', read) == std::string_view::npos;
  if (!is_whole || text.find(':') == std::string::npos) return std::nullopt;
  return text;
}

void remember(std::set<std::string>& all, std::string digest) {
  if (all.size() >= kMostRemembered) all.clear();
  all.insert(std::move(digest));
}

}  // namespace

PasswordCheck::PasswordCheck(const TlsLibrary& library, std::map<std::string, std::string> users)
    : library_(library), users_(std::move(users)), salt_(library.random(kSaltBytes)) {
  if (salt_.empty()) throw std::runtime_error("no random bytes can be had");
  const auto cost = [](const auto& user) {
    return user.second.substr(0, kCostEnds).substr(kCostBegins);
  };
  slowest_ = std::ranges::max_element(users_, {}, cost)->second;
}

Verdict PasswordCheck::admits(std::string_view peer, std::string_view authorization,
                              Clock::time_point now) {
  const auto credentials = credentials_of(authorization);
  if (!credentials) return Verdict::no;
  std::string digest = library_.digest(salt_ + *credentials);
  if (right_.contains(digest)) return Verdict::yes;
  if (wrong_.contains(digest)) return Verdict::no;
  if (!is_turn_of(peer, now)) return Verdict::not_yet;
  const std::size_t colon = credentials->find(':');
  const auto begin = Clock::now();
  const bool fits = is_right(credentials->substr(0, colon), credentials->substr(colon + 1));
  // A process that was stopped meanwhile need not rest for that.
  next_ = now + (1 + kRest) * std::min<Clock::duration>(Clock::now() - begin, kLongestCheck);
  remember(fits ? right_ : wrong_, std::move(digest));
  return fits ? Verdict::yes : Verdict::no;
}

bool PasswordCheck::is_right(const std::string& user, const std::string& password) const {
  const auto found = users_.find(user);
  const bool is_known = found != users_.end();
  const bool fits = library_.fits(password, is_known ? found->second : slowest_);
  return fits && is_known;
}

/// Of those that have asked lately the one whose last turn is longest ago.
bool PasswordCheck::is_turn_of(std::string_view peer, Clock::time_point now) {
  std::erase_if(turns_, [&](const auto& turn) { return now - turn.second.asked > kTurnLasts; });
  auto own = turns_.find(peer);
  if (own == turns_.end()) {
    if (turns_.size() >= kMostPeers) turns_.clear();
    own = turns_.emplace(std::string(peer), Turn()).first;
  }
  own->second.asked = now;
  if (now < next_) return false;
  const bool has_earlier = std::ranges::any_of(turns_, [&](const auto& turn) {
    return now - turn.second.asked <= kStillWaits && turn.second.served < own->second.served;
  });
  if (has_earlier) return false;
  own->second.served = now;
  return true;
}

}  // namespace gradvane::exporters
