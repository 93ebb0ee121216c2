#include "exporters/node/rank_sockets.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <string_view>

#include "exporters/files/private_directory.hpp"

namespace gradvane::exporters {
namespace {

constexpr std::size_t kMostSockets = 8192;
constexpr std::string_view kBegin = "rank";
constexpr std::string_view kEnd = ".sock";

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

/// FNV-1a, 32 bits: http://www.isthe.com/chongo/tech/comp/fnv/
std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 2166136261U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

}  // namespace

std::string word_of_node() {
  std::string node = boot_id();
  for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    struct stat status{};
    (void)::stat(space, &status);
    node += ' ' + std::to_string(status.st_ino);
  }
  const std::uint32_t hash = hash_of(node);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string word;
  for (int shift = 28; shift >= 0; shift -= 4) word.push_back(kDigits[(hash >> shift) & 15U]);
  return word;
}

std::string rank_socket(std::int32_t rank, const std::string& node) {
  return std::string(kBegin) + std::to_string(rank) + '.' + node + std::string(kEnd);
}

std::vector<std::int32_t> ranks_with_socket(int directory, const std::string& node) {
  std::vector<std::int32_t> ranks;
  for (const std::string& name : names_in(directory, kMostSockets)) {
    if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) continue;
    std::int32_t rank = -1;
    const char* digits = name.data() + kBegin.size();
    if (std::from_chars(digits, name.data() + name.size(), rank).ec != std::errc()) continue;
    if (rank >= 0 && name == rank_socket(rank, node)) ranks.push_back(rank);
  }
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace gradvane::exporters
