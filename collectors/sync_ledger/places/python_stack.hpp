#pragma once
// The Python frames of the calling thread, read as plain memory: from a callback in which the
// interpreter must not be entered, in a process that may hold none.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectors/sync_ledger/places/python_layout.hpp"

namespace gradvane::collectors {

/// What is known of the interpreter of this process.
enum class PythonState : std::uint8_t { none, readable, unknown_layout };

/// Reads only: takes no GIL, no lock and no reference, allocates nothing. It needs none of them:
/// while a thread is inside a C function, its frames and their code cannot change or go away.
/// CPython 3.10 to 3.14, release builds with a GIL; anything else has no frames.
class PythonStack {
 public:
  struct Frame {
    const void* code = nullptr;
    std::int32_t offset = 0;  ///< of the instruction, in bytes, as PyCode_Addr2Line takes it
  };

  /// What tells a code object from another one that took its address later. Compared, never
  /// followed. Code that is alike in all this lies in the same function of the same file.
  struct Identity {
    const void* filename = nullptr;
    const void* name = nullptr;
    std::int32_t first_line = 0;
    /// Of the file name's and the line table's ends: code made anew in a loop gets the addresses of
    /// the one before, its strings' too.
    std::uint32_t content = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };

  /// Looks for an interpreter among what is loaded (one loaded with RTLD_LOCAL is not seen). Uses
  /// dlsym: not from a callback. May be called again while state() is none, as a program may load
  /// Python late; afterwards it does nothing. Any thread, also while others walk.
  PythonState look() noexcept;
  [[nodiscard]] PythonState state() const noexcept {
    return state_.load(std::memory_order_acquire);
  }
  [[nodiscard]] const char* version() const noexcept;  ///< "3.11.7", or ""

  // In a callback. The code passed in has to be alive: of a walk in the same call.

  /// While one lives, the interpreter does not end: end() waits for it. Around every walk, and as long as
  /// its code is looked at.
  class Reading {
   public:
    explicit Reading(const PythonStack& stack) noexcept : stack_(stack) {
      stack_.readings_.fetch_add(1, std::memory_order_seq_cst);
    }
    ~Reading() { stack_.readings_.fetch_sub(1, std::memory_order_release); }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    const PythonStack& stack_;
  };

  /// The interpreter is about to end, and will free what is read here: walks find nothing from now on, and
  /// none is under way when this returns. Waits for a second at most. Any thread.
  void end() noexcept;

  /// Innermost first; what is no Python function, or has not begun, is left out. 0 where this
  /// thread has no Python, and once the interpreter ends.
  int walk(std::span<Frame> out) const noexcept;
  [[nodiscard]] Identity identity(const void* code) const noexcept;
  [[nodiscard]] int line(const Frame& frame) const noexcept;  ///< 0 where it has none
  /// UTF-8 with a terminating zero; of a name that is too long the end is kept. Returns its length.
  std::size_t copy_filename(const void* code, std::span<char> out) const noexcept;
  /// The qualified name (3.10: the name); of one that is too long the beginning is kept.
  std::size_t copy_function(const void* code, std::span<char> out) const noexcept;

 private:
  PythonState find() noexcept;
  [[nodiscard]] const void* first_frame(const void* thread) const noexcept;
  bool read_frame(const void* frame, Frame& out) const noexcept;
  std::size_t copy_text(const void* text, bool keep_end, std::span<char> out) const noexcept;

  // Written by look() before state_ says so, and not afterwards.
  PythonLayout layout_;
  const void* code_type_ = nullptr;
  int (*is_initialized_)() = nullptr;
  void* (*this_thread_state_)() = nullptr;
  std::array<char, 24> version_{};

  std::atomic<PythonState> state_{PythonState::none};
  std::atomic_flag looking_;
  mutable std::atomic<int> readings_{0};
  std::atomic<bool> has_ended_{false};
};

}  // namespace gradvane::collectors
