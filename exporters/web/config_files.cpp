#include "exporters/web/config_files.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>

namespace gradvane::exporters {
namespace {

constexpr std::uintmax_t kLargestFile = std::uintmax_t{1} << 20;

}  // namespace

std::string ConfigFiles::text_of(const std::filesystem::path& name) {
  const std::filesystem::path path = folder_ / name;
  all_.emplace_back(path, stamp_of(path.string()));
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    refuse(path.string() + (error ? ": " + error.message() : " is no regular file"));
  if (std::filesystem::file_size(path, error) > kLargestFile)
    refuse(path.string() + " is larger than 1 MiB");
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) refuse(path.string() + ": " + std::strerror(errno));
  return text;
}

std::string ConfigFiles::text_of(const YamlSection& section, const char* key,
                                 const char* file_key) {
  if (section.has(key) && section.has(file_key))
    refuse(section.name_of(key) + " and " + file_key + " are both there; one of them will do");
  const std::string name = section.text(file_key);
  return name.empty() ? section.text(key) : text_of(name);
}

}  // namespace gradvane::exporters
