#include "examples/char_gpt/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace char_gpt {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

void write_out(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

std::size_t terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

Terminal::Terminal() : live_(isatty(STDOUT_FILENO) == 1) {}

Terminal::~Terminal() { settle(); }

void Terminal::print(std::initializer_list<std::string_view> parts) {
  const std::scoped_lock lock(mutex_);
  if (!line_.empty()) write_out(kClearLine);
  for (const auto part : parts) write_out(part);
  write_out("\n");
  draw();
  std::fflush(stdout);
}

void Terminal::update(std::string line) {
  const std::scoped_lock lock(mutex_);
  line_ = std::move(line);
  draw();
  std::fflush(stdout);
}

void Terminal::settle() {
  const std::scoped_lock lock(mutex_);
  if (line_.empty()) return;
  write_out("\n");
  line_.clear();
  std::fflush(stdout);
}

void Terminal::draw() {
  if (line_.empty()) return;
  // One column short: a full line would wrap, and the next update would leave its first half behind.
  write_out(kClearLine);
  write_out(std::string_view(line_).substr(0, terminal_width() - 1));
}

}  // namespace char_gpt
