#pragma once
// The query part of a URL, with its values checked.
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gradvane::exporters {

/// A query that is not allowed; what() says what is, for a person.
class BadQuery : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Every call throws BadQuery where the query asks for something that is not allowed.
class Query {
 public:
  /// Takes `a=b&c=d` apart and undoes %XX and `+`. A key that is not in `allowed`, or comes twice, is
  /// refused.
  Query(std::string_view text, std::initializer_list<std::string_view> allowed);

  [[nodiscard]] bool has(std::string_view key) const { return values_.contains(key); }
  [[nodiscard]] std::string text(std::string_view key) const;
  [[nodiscard]] std::int64_t number(std::string_view key, std::int64_t otherwise,
                                    std::int64_t least, std::int64_t most) const;
  /// Index of the value among `words`; that of `otherwise` where the key is not there.
  [[nodiscard]] std::size_t word(std::string_view key, std::span<const std::string_view> words,
                                 std::string_view otherwise) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace gradvane::exporters
