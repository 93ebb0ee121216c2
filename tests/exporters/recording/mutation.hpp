#pragma once
// Changes bytes at random, in ways that damage and malice would.
#include <algorithm>
#include <cstddef>
#include <random>
#include <string>

namespace gradvane::exporters::fakes {

/// The same seed makes the same changes.
class Mutation {
 public:
  explicit Mutation(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void operator()(std::string& bytes, const std::string& other) {
    for (std::size_t i = 1 + below(4); i > 0 && !bytes.empty(); --i) one(bytes, other);
  }

 private:
  void one(std::string& bytes, const std::string& other) {
    const std::size_t at = below(bytes.size());
    switch (below(7)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        bytes.insert(at, other, below(other.size()), below(200));
        break;
      case 3:
        bytes.erase(at, below(40));
        break;
      case 4:  // a length, as far as anybody knows
        for (std::size_t i = at; i < std::min(at + 4, bytes.size()); ++i)
          bytes[i] = static_cast<char>(below(2) == 0 ? 0xFF : random_());
        break;
      case 5:
        bytes[at] = static_cast<char>(random_());
        break;
      default:
        bytes.replace(at, below(60), other, below(other.size()), below(60));
    }
  }

  std::mt19937 random_;
};

}  // namespace gradvane::exporters::fakes
