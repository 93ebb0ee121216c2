#include "record/run/process_start.hpp"

#include <fstream>
#include <sstream>
#include <string>

namespace gradvane::record {

std::optional<std::uint64_t> process_start_ticks(pid_t process) {
  constexpr int kState = 3;  // proc(5): fields count from 1, and the name is field 2
  constexpr int kStartTime = 22;
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  std::string word;
  for (int field = kState; rest >> word; ++field) {
    if (field == kState && (word == "Z" || word == "X")) return std::nullopt;
    if (field == kStartTime) return std::stoull(word);
  }
  return std::nullopt;
}

}  // namespace gradvane::record
