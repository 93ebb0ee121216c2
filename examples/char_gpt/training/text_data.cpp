#include "examples/char_gpt/training/text_data.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace char_gpt {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(const fs::path& data) {
  if (fs::is_regular_file(data)) return {data};
  if (!fs::is_directory(data)) {
    throw std::invalid_argument("--data " + data.string() +
                                ": no such file or folder; name a text file, or a folder of them");
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(data)) {
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string contents(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream) throw std::runtime_error("cannot read " + path.string());
  return text;
}

}  // namespace

Text make_text(const std::vector<std::string>& files) {
  std::array<bool, 256> occurs{};
  for (const auto& file : files) {
    for (const char byte : file) occurs[static_cast<std::uint8_t>(byte)] = true;
  }
  Text text;
  std::array<std::uint8_t, 256> token{};
  for (std::size_t byte = 0; byte < occurs.size(); ++byte) {
    if (!occurs[byte]) continue;
    token[byte] = static_cast<std::uint8_t>(text.vocabulary.size());
    text.vocabulary.push_back(static_cast<char>(byte));
  }
  for (const auto& file : files) {
    const std::size_t training = file.size() - file.size() / 10;
    for (std::size_t i = 0; i < file.size(); ++i) {
      auto& part = i < training ? text.training : text.held_out;
      part.push_back(token[static_cast<std::uint8_t>(file[i])]);
    }
    ++text.files;
  }
  return text;
}

Text read_text(const fs::path& data) {
  std::vector<std::string> texts;
  for (const auto& path : files_of(data)) texts.push_back(contents(path));
  Text text = make_text(texts);
  if (text.training.empty()) {
    throw std::invalid_argument("--data " + data.string() + ": no text in it");
  }
  return text;
}

}  // namespace char_gpt
