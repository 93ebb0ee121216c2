#include "collectors/sync_ledger/places/python_layout.hpp"

#include <bit>
#include <charconv>

namespace gradvane::collectors {
namespace {

// From the headers of each version: Include/cpython/{pystate,code,unicodeobject,frameobject}.h and
// Include/internal/pycore_{frame,interpframe_structs}.h, as laid out for 64 bits. Those of 3.10.8
// and 3.10.13 agree, as do 3.13.0 and 3.13.5: layouts are fixed once a minor version is released.
constexpr PythonLayout kLayouts[] = {
    {.minor = 10,
     .entry = PythonEntry::frame_object,
     .thread_frame = 24,
     .thread_id = 176,
     .thread_interpreter = 16,
     .frame_code = 32,
     .frame_previous = 24,
     .frame_instruction = 96,
     .code_first_line = 40,
     .code_filename = 104,
     .code_name = 112,
     .code_line_table = 120,
     .code_bytes = 48,
     .text_state = 32,
     .text_ascii_size = 48,
     .text_compact_size = 72,
     .code_size = 176,
     .frame_size = 360,
     .text_size = 80},
    {.minor = 11,
     .entry = PythonEntry::c_frame,
     .thread_frame = 56,
     .thread_id = 152,
     .thread_interpreter = 16,
     .c_frame_frame = 8,
     .frame_code = 32,
     .frame_previous = 48,
     .frame_instruction = 56,
     .frame_owner = 69,
     .code_first_line = 72,
     .code_filename = 112,
     .code_name = 128,
     .code_line_table = 136,
     .code_first_traceable = 168,
     .code_bytes = 184,
     .text_state = 32,
     .text_ascii_size = 48,
     .text_compact_size = 72,
     .code_size = 184,
     .frame_size = 120,
     .text_size = 80},
    {.minor = 12,
     .entry = PythonEntry::c_frame,
     .thread_frame = 56,
     .thread_id = 136,
     .thread_interpreter = 16,
     .c_frame_frame = 0,
     .frame_code = 0,
     .frame_previous = 8,
     .frame_instruction = 56,
     .frame_owner = 70,
     .code_first_line = 68,
     .code_filename = 112,
     .code_name = 128,
     .code_line_table = 136,
     .code_first_traceable = 176,
     .code_bytes = 192,
     .text_state = 32,
     .text_ascii_size = 40,
     .text_compact_size = 56,
     .code_size = 192,
     .frame_size = 120,
     .text_size = 64},
    {.minor = 13,
     .entry = PythonEntry::interpreter,
     .thread_frame = 72,
     .thread_id = 152,
     .thread_interpreter = 16,
     .frame_code = 0,
     .frame_previous = 8,
     .frame_instruction = 56,
     .frame_owner = 70,
     .code_first_line = 68,
     .code_filename = 112,
     .code_name = 128,
     .code_line_table = 136,
     .code_first_traceable = 184,
     .code_bytes = 200,
     .text_state = 32,
     .text_ascii_size = 40,
     .text_compact_size = 56,
     .code_size = 200,
     .frame_size = 136,
     .text_size = 64},
    {.minor = 14,
     .entry = PythonEntry::interpreter_tag,
     .thread_frame = 72,
     .thread_id = 152,
     .thread_interpreter = 16,
     .frame_code = 0,
     .frame_previous = 8,
     .frame_instruction = 56,
     .frame_owner = 74,
     .code_first_line = 68,
     .code_filename = 112,
     .code_name = 128,
     .code_line_table = 136,
     .code_first_traceable = 192,
     .code_bytes = 208,
     .text_state = 32,
     .text_ascii_size = 40,
     .text_compact_size = 56,
     .code_size = 208,
     .frame_size = 152,
     .text_size = 64},
};

constexpr bool kAsWeRead = sizeof(void*) == 8 && std::endian::native == std::endian::little;

bool take_number(std::string_view& text, int& number) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, std::string_view start) noexcept {
  if (!text.starts_with(start)) return false;
  text.remove_prefix(start.size());
  return true;
}

// Positions in _Py_DebugOffsets (Include/internal/pycore_runtime.h, pycore_debug_offsets.h),
// counted in its 64-bit words.
struct DebugWords {
  std::size_t thread_interpreter, thread_frame, thread_id;
  std::size_t frame_previous, frame_code, frame_instruction, frame_owner;
  std::size_t filename, qualname, line_table, first_line, code_bytes;
  std::size_t object_type, bytes_size, bytes_data;
  std::size_t text_size, text_state, text_length, text_ascii_size;
};
constexpr std::size_t kVersionWord = 1;
constexpr std::size_t kFreeThreadedWord = 2;
constexpr DebugWords kWords13 = {22, 23, 24, 29, 30, 31, 33, 35, 37, 38,
                                 39, 43, 45, 65, 66, 67, 68, 69, 70};
constexpr DebugWords kWords14 = {25, 26, 27, 32, 33, 34, 36, 40, 42, 43,
                                 44, 48, 51, 75, 76, 77, 78, 79, 80};

bool take_debug_offsets(PythonLayout& layout, const PythonSelf& self) noexcept {
  const auto word = [&self](std::size_t index) {
    return read_at<std::uint64_t>(self.runtime, index * sizeof(std::uint64_t));
  };
  if (self.runtime == nullptr || std::memcmp(self.runtime, "xdebugpy", 8) != 0 ||
      word(kVersionWord) != read_at<unsigned long>(self.version, 0) ||
      word(kFreeThreadedWord) != 0) {
    return false;
  }
  const DebugWords& words = layout.minor == 13 ? kWords13 : kWords14;
  // What is not published has its place relative to what is, in a struct of the size that we know.
  if (word(words.code_bytes) != layout.code_bytes || word(words.text_size) != layout.text_size ||
      word(words.object_type) != PythonObject::kType ||
      word(words.bytes_size) != PythonObject::kSize ||
      word(words.bytes_data) != PythonObject::kBytesData ||
      word(words.text_length) != PythonObject::kSize) {
    return false;
  }
  bool plausible = true;
  const auto set = [&](std::uint16_t& field, std::size_t index, std::size_t alignment) {
    constexpr std::uint64_t kLargest = 2048;  // all of them are below 300
    const std::uint64_t offset = word(index);
    if (offset > kLargest || offset % alignment != 0) plausible = false;
    field = static_cast<std::uint16_t>(offset);
  };
  set(layout.thread_interpreter, words.thread_interpreter, 8);
  set(layout.thread_frame, words.thread_frame, 8);
  set(layout.thread_id, words.thread_id, 8);
  set(layout.frame_previous, words.frame_previous, 8);
  set(layout.frame_code, words.frame_code, 8);
  set(layout.frame_instruction, words.frame_instruction, 8);
  set(layout.frame_owner, words.frame_owner, 1);
  set(layout.code_filename, words.filename, 8);
  set(layout.code_name, words.qualname, 8);
  set(layout.code_line_table, words.line_table, 8);
  set(layout.code_first_line, words.first_line, 4);
  set(layout.text_state, words.text_state, 4);
  set(layout.text_ascii_size, words.text_ascii_size, 4);
  return plausible;
}

bool type_is(const void* type, std::string_view name, std::uint16_t size) noexcept {
  if (type == nullptr) return false;
  // The size first: where it is right the object's head is the one we know, and the name a pointer.
  if (read_at<std::int64_t>(type, PythonObject::kTypeBasic) != size) return false;
  return name == read_at<const char*>(type, PythonObject::kTypeName);
}

}  // namespace

const PythonLayout* python_layout(std::string_view version) noexcept {
  // Other implementations, and builds whose objects have another head.
  for (const std::string_view other : {"PyPy", "Graal", "free-threading"}) {
    if (version.find(other) != std::string_view::npos) return nullptr;
  }
  int minor = 0;
  int patch = 0;
  if (!kAsWeRead || !take(version, "3.") || !take_number(version, minor) || !take(version, ".") ||
      !take_number(version, patch)) {
    return nullptr;
  }
  // Layouts move until the first release candidate ("3.14.0a7", "3.14.0b1").
  int candidate = 0;
  if (take(version, "rc") && !take_number(version, candidate)) return nullptr;
  if (!version.empty() && version.front() != ' ' && version.front() != '+') return nullptr;
  for (const PythonLayout& layout : kLayouts) {
    if (layout.minor == minor) return &layout;
  }
  return nullptr;
}

bool confirm_layout(PythonLayout& layout, const PythonSelf& self) noexcept {
  if (!type_is(self.code_type, "code", layout.code_size) ||
      !type_is(self.frame_type, "frame", layout.frame_size) ||
      !type_is(self.text_type, "str", layout.text_size)) {
    return false;
  }
  if (layout.minor == 10) return true;
  if (self.version == nullptr) return false;
  const auto number = read_at<unsigned long>(self.version, 0);  // 0x030b07f0
  if (number >> 24U != 3 || ((number >> 16U) & 0xffU) != static_cast<unsigned>(layout.minor)) {
    return false;
  }
  return layout.minor < 13 || take_debug_offsets(layout, self);
}

}  // namespace gradvane::collectors
