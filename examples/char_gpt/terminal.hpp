#pragma once
// Lines on stdout: permanent ones, and on a terminal one that is rewritten in place.
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>

namespace char_gpt {

/// Calls may come from several threads: the agent has a word to say now and then.
class Terminal {
 public:
  Terminal();
  /// Leaves the last state of the live line behind.
  ~Terminal();
  Terminal(const Terminal&) = delete;  // one stdout, one live line
  Terminal& operator=(const Terminal&) = delete;

  /// Whether stdout is a terminal, so that a line can be rewritten.
  [[nodiscard]] bool live() const { return live_; }

  /// Writes a line that stays, above the live line if there is one.
  void print(std::string_view line) { print({line}); }
  /// The same for a line in parts.
  void print(std::initializer_list<std::string_view> parts);

  /// Writes the live line, or rewrites it; cut to the width of the terminal.
  void update(std::string line);

  /// What was the live line stays; the next update begins a new one.
  void settle();

 private:
  void draw();

  const bool live_;
  std::mutex mutex_;
  std::string line_;  // the live line; empty: none
};

}  // namespace char_gpt
