#pragma once
// Who may read, by name and password (HTTP basic authentication, RFC 7617).
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "exporters/web/tls.hpp"

namespace gradvane::exporters {

/// A password takes bcrypt 70 ms or more, on the thread of the endpoint. So what has been right or wrong once is
/// known, by its digest; and what is new is checked one at a time, each address in its turn, for at most a quarter
/// of the time. However many wrong passwords come, a right one that is known is let in at once. An unknown name takes as
/// long as a wrong password. One thread.
class PasswordCheck {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param library  has to live as long
  /// @param users    bcrypt hashes by name; at least one
  PasswordCheck(const TlsLibrary& library, std::map<std::string, std::string> users);

  /// As WebAccess::admits().
  [[nodiscard]] WebAccess::Verdict admits(std::string_view peer, std::string_view authorization,
                                          Clock::time_point now);

 private:
  struct Turn {
    Clock::time_point asked;
    Clock::time_point served;
  };

  [[nodiscard]] bool is_turn_of(std::string_view peer, Clock::time_point now);
  [[nodiscard]] bool is_right(const std::string& user, const std::string& password) const;

  const TlsLibrary& library_;
  std::map<std::string, std::string> users_;
  std::string slowest_;  ///< the hash that takes longest, for names that are not known
  std::string salt_;     ///< of the digests
  std::set<std::string> right_;
  std::set<std::string> wrong_;
  std::map<std::string, Turn, std::less<>> turns_;
  Clock::time_point next_;  ///< when the next password may be checked
};

}  // namespace gradvane::exporters
