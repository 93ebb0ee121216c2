#pragma once
// Where CPython keeps what a walk of its stack reads: one table a minor version, in bytes.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace gradvane::collectors {

/// Reads memory of the interpreter, which no type of ours describes.
template <typename T>
[[nodiscard]] T read_at(const void* base, std::size_t offset) noexcept {
  T value{};
  std::memcpy(static_cast<void*>(&value), static_cast<const unsigned char*>(base) + offset,
              sizeof value);
  return value;
}

/// The head of every object, the same in all versions that are read.
struct PythonObject {
  static constexpr std::size_t kType = 8;
  static constexpr std::size_t kSize = 16;        // of objects of varying size, and of strings
  static constexpr std::size_t kBytesData = 32;   // PyBytesObject.ob_sval
  static constexpr std::size_t kTypeName = 24;    // PyTypeObject.tp_name
  static constexpr std::size_t kTypeBasic = 32;   // PyTypeObject.tp_basicsize
  static constexpr std::size_t kTypeFlags = 168;  // PyTypeObject.tp_flags
};

/// How a thread state leads to its innermost frame.
enum class PythonEntry : std::uint8_t {
  frame_object,    // 3.10: PyThreadState.frame, a PyFrameObject
  c_frame,         // 3.11, 3.12: PyThreadState.cframe->current_frame
  interpreter,     // 3.13: PyThreadState.current_frame
  interpreter_tag  // 3.14: the same, and the frame's code is a tagged reference
};

struct PythonLayout {
  int minor = 0;
  PythonEntry entry = PythonEntry::frame_object;

  std::uint16_t thread_frame = 0;  // or the C frame that leads to it
  std::uint16_t thread_id = 0;
  std::uint16_t thread_interpreter = 0;
  std::uint16_t c_frame_frame = 0;

  std::uint16_t frame_code = 0;
  std::uint16_t frame_previous = 0;
  std::uint16_t frame_instruction = 0;  // 3.10: an index, else a pointer
  std::uint16_t frame_owner = 0;        // from 3.11

  std::uint16_t code_first_line = 0;
  std::uint16_t code_filename = 0;
  std::uint16_t code_name = 0;  // what is shown: the qualified name from 3.11
  std::uint16_t code_line_table = 0;
  std::uint16_t code_first_traceable = 0;  // from 3.11
  std::uint16_t code_bytes = 0;            // 3.10: a bytes object, else the instructions themselves

  std::uint16_t text_state = 0;
  std::uint16_t text_ascii_size = 0;    // where the characters of a compact ASCII string begin
  std::uint16_t text_compact_size = 0;  // of another compact string; or the pointer to them

  // What the types of code, frame and str say of their own size.
  std::uint16_t code_size = 0;
  std::uint16_t frame_size = 0;
  std::uint16_t text_size = 0;
};

/// The table for what Py_GetVersion() returned; null for a version, an implementation or a kind of
/// build that has none.
[[nodiscard]] const PythonLayout* python_layout(std::string_view version) noexcept;

/// Static data of the interpreter, at the addresses that dlsym gave.
struct PythonSelf {
  const void* code_type = nullptr;
  const void* frame_type = nullptr;
  const void* text_type = nullptr;
  const void* version = nullptr;  // Py_Version, from 3.11
  const void* runtime = nullptr;  // _PyRuntime, needed from 3.13
};

/// Compares the table with what the interpreter says of itself, and from 3.13 on takes the offsets
/// that it publishes. False where they contradict each other.
/// What cannot be checked: where a thread state and, before 3.13, a frame keep their fields; only
/// their sizes show (of the frame), and the thread's identifier (at each walk).
[[nodiscard]] bool confirm_layout(PythonLayout& layout, const PythonSelf& self) noexcept;

}  // namespace gradvane::collectors
