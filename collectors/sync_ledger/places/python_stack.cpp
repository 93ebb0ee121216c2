#include "collectors/sync_ledger/places/python_stack.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>

#include "collectors/sync_ledger/within_a_second.hpp"

namespace gradvane::collectors {
namespace {

// FRAME_OWNED_BY_CSTACK of 3.12 and 3.13, FRAME_OWNED_BY_INTERPRETER and _CSTACK of 3.14: frames
// that stand for a C function. Those of a thread, a generator or a frame object are smaller.
constexpr unsigned char kOwnerGenerator = 1;
constexpr unsigned char kFirstOwnerNotPython = 3;
constexpr std::int32_t kInstructionBytes = 2;

template <typename Function>
Function symbol(const char* name) noexcept {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

const void* pointer_at(const void* base, std::size_t offset) noexcept {
  return read_at<const void*>(base, offset);
}

// The characters of a str, of one, two or four bytes each.
struct Text {
  const unsigned char* data = nullptr;
  std::size_t length = 0;
  std::size_t width = 1;

  [[nodiscard]] std::uint32_t at(std::size_t index) const noexcept {
    std::uint32_t character = 0;  // little-endian
    std::memcpy(&character, data + index * width, width);
    // What UTF-8 cannot hold: surrogates, of file names that are not UTF-8. And a zero, which would
    // end our text early.
    constexpr std::uint32_t kReplacement = 0xfffd;
    const bool none = character == 0 || (character >= 0xd800 && character <= 0xdfff);
    return none || character > 0x10ffff ? kReplacement : character;
  }
};

std::size_t utf8_size(std::uint32_t character) noexcept {
  return character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
}

void put_utf8(std::uint32_t character, std::size_t size, char* out) noexcept {
  constexpr std::array<std::uint32_t, 5> kLead = {0, 0, 0xc0, 0xe0, 0xf0};
  for (std::size_t i = size - 1; i > 0; --i, character >>= 6U) {
    out[i] = static_cast<char>(0x80U | (character & 0x3fU));
  }
  out[0] = static_cast<char>(kLead[size] | character);
}

Text text_of(const void* object, const PythonLayout& layout) noexcept {
  constexpr std::uint64_t kStringSubclass = 1U << 28U;  // Py_TPFLAGS_UNICODE_SUBCLASS
  if (object == nullptr) return {};
  const void* type = pointer_at(object, PythonObject::kType);
  if ((read_at<std::uint64_t>(type, PythonObject::kTypeFlags) & kStringSubclass) == 0) return {};
  // interned:2 kind:3 compact:1 ascii:1, in all versions
  const auto bits = read_at<std::uint32_t>(object, layout.text_state);
  const std::uint32_t kind = bits >> 2U & 7U;
  const bool compact = (bits >> 5U & 1U) != 0;
  const bool ascii = (bits >> 6U & 1U) != 0;
  const auto length = read_at<std::int64_t>(object, PythonObject::kSize);
  // A string of a subclass before 3.12 may still wait to be converted: kind 0.
  if (length < 0 || (kind != 1 && kind != 2 && kind != 4)) return {};
  Text text;
  text.length = static_cast<std::size_t>(length);
  text.width = kind;
  const auto* base = static_cast<const unsigned char*>(object);
  if (compact) {
    text.data = base + (ascii ? layout.text_ascii_size : layout.text_compact_size);
  } else {  // of a subclass: the characters lie elsewhere
    text.data = static_cast<const unsigned char*>(pointer_at(object, layout.text_compact_size));
    if (text.data == nullptr) return {};
  }
  return text;
}

std::span<const unsigned char> bytes_of(const void* object) noexcept {
  if (object == nullptr) return {};
  const auto size = read_at<std::int64_t>(object, PythonObject::kSize);
  const auto* data = static_cast<const unsigned char*>(object) + PythonObject::kBytesData;
  return size < 0 ? std::span<const unsigned char>{}
                  : std::span(data, static_cast<std::size_t>(size));
}

std::uint64_t mix(std::uint64_t hash, std::span<const unsigned char> bytes) noexcept {
  std::uint64_t end = 0;
  const std::size_t size = std::min(bytes.size(), sizeof end);
  if (size != 0) std::memcpy(&end, bytes.data() + bytes.size() - size, size);
  for (const std::uint64_t part : {std::uint64_t{bytes.size()}, end}) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 32U;
  }
  return hash;
}

// Python's own PyCode_Addr2Line reads tables that another thread makes when it begins to trace, and
// relies on the GIL in that. The one made by the compiler does not change.

// 3.10: pairs of a length and a difference in lines (Objects/lnotab_notes.txt).
int line_in_pairs(std::span<const unsigned char> table, int first_line, int offset) noexcept {
  constexpr int kNoLine = -128;
  int line = first_line;
  int end = 0;
  for (std::size_t i = 0; i + 1 < table.size(); i += 2) {
    const int difference = table[i + 1] < 128 ? table[i + 1] : table[i + 1] - 256;
    end += table[i];
    if (difference != kNoLine) line += difference;
    if (offset < end) return difference == kNoLine ? 0 : line;
  }
  return 0;
}

// A number in groups of six bits, the lowest first; the sign is the lowest bit.
int signed_number(std::span<const unsigned char> bytes) noexcept {
  unsigned value = 0;
  unsigned shift = 0;
  for (const unsigned char byte : bytes) {
    value |= (byte & 63U) << shift;
    shift += 6;
    if ((byte & 64U) == 0 || shift > 24) break;
  }
  const int half = static_cast<int>(value >> 1U);
  return (value & 1U) != 0 ? -half : half;
}

// From 3.11: entries that begin with a byte whose highest bit is set (Objects/locations.md).
int line_in_entries(std::span<const unsigned char> table, int first_line, int offset) noexcept {
  constexpr unsigned kOneLine0 = 10;
  constexpr unsigned kOneLine2 = 12;
  constexpr unsigned kNoColumns = 13;
  constexpr unsigned kAllColumns = 14;
  constexpr unsigned kNoLine = 15;
  int line = first_line;
  int end = 0;
  for (std::size_t i = 0; i < table.size();) {
    const unsigned kind = table[i] >> 3U & 15U;
    end += (static_cast<int>(table[i] & 7U) + 1) * kInstructionBytes;
    ++i;
    if (kind == kNoColumns || kind == kAllColumns) {
      line += signed_number(table.subspan(i));
    } else if (kind >= kOneLine0 && kind <= kOneLine2) {
      line += static_cast<int>(kind - kOneLine0);
    }
    if (offset < end) return kind == kNoLine ? 0 : line;
    while (i < table.size() && (table[i] & 128U) == 0) ++i;
  }
  return 0;
}

}  // namespace

PythonState PythonStack::look() noexcept {
  if (state() != PythonState::none || looking_.test_and_set(std::memory_order_acquire)) {
    return state();
  }
  if (state() == PythonState::none) state_.store(find(), std::memory_order_release);
  looking_.clear(std::memory_order_release);
  return state();
}

PythonState PythonStack::find() noexcept {
  const auto get_version = symbol<const char* (*)()>("Py_GetVersion");
  if (get_version == nullptr) return PythonState::none;
  const char* const text = get_version();  // may be asked for before the interpreter is set up
  if (text == nullptr) return PythonState::unknown_layout;
  const std::string_view version(text);
  const std::size_t length = std::min(version.find(' '), version.size());
  version_.fill('\0');
  version.substr(0, length).copy(version_.data(), version_.size() - 1);

  is_initialized_ = symbol<int (*)()>("Py_IsInitialized");
  this_thread_state_ = symbol<void* (*)()>("PyGILState_GetThisThreadState");
  const PythonSelf self{.code_type = symbol<void*>("PyCode_Type"),
                        .frame_type = symbol<void*>("PyFrame_Type"),
                        .text_type = symbol<void*>("PyUnicode_Type"),
                        .version = symbol<void*>("Py_Version"),
                        .runtime = symbol<void*>("_PyRuntime")};
  const PythonLayout* known = python_layout(version);
  // There in debug builds only, whose structs may hold more.
  const bool debug = symbol<void*>("_Py_NegativeRefcount") != nullptr;
  if (known == nullptr || debug || is_initialized_ == nullptr || this_thread_state_ == nullptr) {
    return PythonState::unknown_layout;
  }
  layout_ = *known;
  code_type_ = self.code_type;
  if (!confirm_layout(layout_, self)) return PythonState::unknown_layout;

  const auto interpreter_of = symbol<void* (*)(void*)>("PyThreadState_GetInterpreter");
  void* const thread = is_initialized_() != 0 ? this_thread_state_() : nullptr;
  if (thread != nullptr && interpreter_of != nullptr &&
      interpreter_of(thread) != pointer_at(thread, layout_.thread_interpreter)) {
    return PythonState::unknown_layout;
  }
  return PythonState::readable;
}

const char* PythonStack::version() const noexcept {
  return state() == PythonState::none ? "" : version_.data();
}

void PythonStack::end() noexcept {
  has_ended_.store(true, std::memory_order_seq_cst);
  (void)within_a_second([this] { return readings_.load(std::memory_order_seq_cst) == 0; });
}

int PythonStack::walk(std::span<Frame> out) const noexcept {
  // end() raises its flag first and then looks for readings, we the other way round.
  if (state() != PythonState::readable || has_ended_.load(std::memory_order_seq_cst) ||
      is_initialized_() == 0)
    return 0;
  const void* thread = this_thread_state_();
  // Another thread's state, or a layout that is not what we think. (Until 3.11 a state that was made
  // here for another thread to run with passes.)
  if (thread == nullptr || read_at<unsigned long>(thread, layout_.thread_id) != ::pthread_self()) {
    return 0;
  }
  std::size_t count = 0;
  const void* frame = first_frame(thread);
  // Frames of C functions lie between those of Python ones, at most one for each.
  const std::size_t most = 2 * out.size() + 64;
  for (std::size_t seen = 0; frame != nullptr && count < out.size() && seen < most; ++seen) {
    if (read_frame(frame, out[count])) ++count;
    frame = pointer_at(frame, layout_.frame_previous);
  }
  return static_cast<int>(count);
}

const void* PythonStack::first_frame(const void* thread) const noexcept {
  const void* frame = pointer_at(thread, layout_.thread_frame);
  if (layout_.entry != PythonEntry::c_frame || frame == nullptr) return frame;
  return pointer_at(frame, layout_.c_frame_frame);
}

bool PythonStack::read_frame(const void* frame, Frame& out) const noexcept {
  const bool is_object = layout_.entry == PythonEntry::frame_object;
  const unsigned char owner = is_object ? 0 : read_at<unsigned char>(frame, layout_.frame_owner);
  if (owner >= kFirstOwnerNotPython) return false;

  auto address = read_at<std::uintptr_t>(frame, layout_.frame_code);
  // The lowest bits of a reference say who counts it.
  if (layout_.entry == PythonEntry::interpreter_tag) address &= ~std::uintptr_t{3};
  const void* code = reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr)
  // In 3.13 a frame may run None, or what an extension put there.
  if (code == nullptr || pointer_at(code, PythonObject::kType) != code_type_) return false;

  std::int64_t offset = 0;
  if (is_object) {
    offset =
        std::int64_t{read_at<std::int32_t>(frame, layout_.frame_instruction)} * kInstructionBytes;
  } else {
    // Unsigned, as the two need not lie in one object when the frame has not begun.
    offset = static_cast<std::int64_t>(read_at<std::uintptr_t>(frame, layout_.frame_instruction) -
                                       (address + layout_.code_bytes));
    const auto first = read_at<std::int32_t>(code, layout_.code_first_traceable);
    // As _PyFrame_IsIncomplete: still being set up, which Python does not show either.
    if (owner != kOwnerGenerator && offset < std::int64_t{first} * kInstructionBytes) return false;
  }
  if (offset > std::numeric_limits<std::int32_t>::max()) return false;
  out.code = code;
  out.offset = offset < 0 ? -1 : static_cast<std::int32_t>(offset);
  return true;
}

PythonStack::Identity PythonStack::identity(const void* code) const noexcept {
  if (state() != PythonState::readable || code == nullptr) return {};
  const void* filename = pointer_at(code, layout_.code_filename);
  const Text text = text_of(filename, layout_);
  const std::uint64_t hash = mix(mix(0, {text.data, text.length * text.width}),
                                 bytes_of(pointer_at(code, layout_.code_line_table)));
  return {.filename = filename,
          .name = pointer_at(code, layout_.code_name),
          .first_line = read_at<std::int32_t>(code, layout_.code_first_line),
          .content = static_cast<std::uint32_t>(hash)};
}

int PythonStack::line(const Frame& frame) const noexcept {
  if (state() != PythonState::readable || frame.code == nullptr) return 0;
  const auto first = read_at<std::int32_t>(frame.code, layout_.code_first_line);
  if (frame.offset < 0) return std::max(first, 0);
  const auto table = bytes_of(pointer_at(frame.code, layout_.code_line_table));
  const int line = layout_.minor == 10 ? line_in_pairs(table, first, frame.offset)
                                       : line_in_entries(table, first, frame.offset);
  return std::max(line, 0);
}

std::size_t PythonStack::copy_filename(const void* code, std::span<char> out) const noexcept {
  if (out.empty()) return 0;
  out[0] = '\0';
  if (state() != PythonState::readable || code == nullptr) return 0;
  return copy_text(pointer_at(code, layout_.code_filename), true, out);
}

std::size_t PythonStack::copy_function(const void* code, std::span<char> out) const noexcept {
  if (out.empty()) return 0;
  out[0] = '\0';
  if (state() != PythonState::readable || code == nullptr) return 0;
  return copy_text(pointer_at(code, layout_.code_name), false, out);
}

std::size_t PythonStack::copy_text(const void* object, bool keep_end,
                                   std::span<char> out) const noexcept {
  const Text text = text_of(object, layout_);
  const std::size_t room = out.size() - 1;
  std::size_t first = 0;
  if (keep_end) {
    std::size_t size = 0;
    for (first = text.length; first > 0; --first) {
      size += utf8_size(text.at(first - 1));
      if (size > room) break;
    }
  }
  std::size_t used = 0;
  for (std::size_t i = first; i < text.length; ++i) {
    const std::uint32_t character = text.at(i);
    const std::size_t size = utf8_size(character);
    if (used + size > room) break;
    put_utf8(character, size, out.data() + used);
    used += size;
  }
  out[used] = '\0';
  return used;
}

}  // namespace gradvane::collectors
