#pragma once
// Who asked for a call: the calling thread's scope, else its innermost Python frame that is neither torch's
// nor ours, else its innermost native caller beyond CUDA, torch and us, else just the thread.
#include <array>
#include <atomic>
#include <string_view>

#include "collectors/sync_ledger/places/native_stack.hpp"
#include "collectors/sync_ledger/places/place_store.hpp"
#include "collectors/sync_ledger/places/python_stack.hpp"
#include "collectors/sync_ledger/thread_table.hpp"

namespace gradvane::collectors {

/// Whose code a Python file holds.
enum class CodeOwner : std::uint8_t { user, torch, profiler, library };

/// By the path alone. `library` is Python's own.
[[nodiscard]] CodeOwner owner_of_file(std::string_view path) noexcept;

class PlaceFinder {
 public:
  PlaceFinder(PlaceStore& places, const PythonStack& python) : places_(places), python_(python) {}

  /// Files below `directory` are passed over like torch's. Set-up; at most 8.
  void pass_over(std::string_view directory) noexcept;

  struct Found {
    PlaceId place = kOtherPlace;
    bool in_profiler = false;  ///< PyTorch's profiler asked
    bool is_known = false;     ///< there is a line, if not room for it
  };
  /// On the calling thread, in a callback: takes no lock, allocates nothing, asks nobody for the GIL.
  /// `scope`: a name that lives as long as the process; may be null.
  Found find(ThreadTable& table, const CudaCall& call, const char* scope) noexcept;

 private:
  static constexpr int kFrames = 64;
  static constexpr int kUsualFrames = 4;
  using Frames = std::array<PythonStack::Frame, kFrames>;

  Found find_python(ThreadTable& table) noexcept;
  PlaceId python_place(ThreadTable& table, const Frames& frames, int count, int chosen,
                       std::uint32_t serial) noexcept;
  PlaceId scope_place(ThreadTable& table, const char* scope) noexcept;
  PlaceId native_place(ThreadTable& table, const CudaCall& call) noexcept;
  PlaceId thread_place(ThreadTable& table) noexcept;
  const CodeEntry* code_of(ThreadTable& table, const void* code) noexcept;
  [[nodiscard]] CodeOwner owner_of(const void* code) const noexcept;

  PlaceStore& places_;
  const PythonStack& python_;
  struct Directory {
    std::array<char, 256> path;
    std::size_t length;
  };
  std::array<Directory, 8> passed_over_{};
  std::atomic<std::size_t> directories_{0};
};

}  // namespace gradvane::collectors
