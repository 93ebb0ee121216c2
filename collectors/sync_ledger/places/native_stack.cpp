#include "collectors/sync_ledger/places/native_stack.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <string_view>

namespace gradvane::collectors {
namespace {

#if defined(__x86_64__) && defined(DLFO_STRUCT_HAS_EH_DBASE)
using FindObject = int (*)(void*, dl_find_object*);
// Libraries are looked up without the loader's lock, which a thread may hold that waits for ours.
std::atomic<FindObject> find_object{nullptr};
/// Start of the program or library that Python's interpreter lies in: its functions tell nothing of a script.
std::atomic<const void*> interpreter{nullptr};

constexpr std::uintptr_t kFarthest = 64 * 1024;  ///< bytes of stack that a known way may span
constexpr std::uint32_t kFreely = 256;    ///< unwound by one thread before it becomes sparing
constexpr std::uint32_t kSparingly = 64;  ///< then one in so many
constexpr int kDeepest = 64;

/// What the stack has as a number.
void* pointer_to(std::uintptr_t address) noexcept {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

struct Walk {
  NativeStack::Callers* callers;
  std::array<std::uintptr_t, Place::kLines> slots{};
  const void* own = nullptr;  ///< start of the library that this code lies in
  bool has_left = false;
  int depth = 0;
};

_Unwind_Reason_Code take_frame(_Unwind_Context* context, void* user) {
  auto& walk = *static_cast<Walk*>(user);
  if (++walk.depth > kDeepest || walk.callers->count == Place::kLines) return _URC_END_OF_STACK;
  const auto address = static_cast<std::uintptr_t>(_Unwind_GetIP(context));
  dl_find_object object{};
  // Code that belongs to no library, as a compiler's at run time: what calls it is still of use.
  if (find_object.load(std::memory_order_relaxed)(pointer_to(address), &object) != 0)
    return _URC_NO_REASON;
  walk.has_left |= object.dlfo_map_start != walk.own;
  if (!walk.has_left || object.dlfo_map_start == interpreter.load(std::memory_order_relaxed) ||
      is_passed_over_library(object.dlfo_link_map->l_name))
    return _URC_NO_REASON;
  const auto at = static_cast<std::size_t>(walk.callers->count++);
  walk.callers->addresses[at] = address;
  // libgcc gives each frame the stack address that its callee's frame began at.
  walk.slots[at] = static_cast<std::uintptr_t>(_Unwind_GetCFA(context)) - sizeof(void*);
  return _URC_NO_REASON;
}

std::uintptr_t word_at(std::uintptr_t address) noexcept {
  return *static_cast<const volatile std::uintptr_t*>(pointer_to(address));
}

bool is_same_way(const NativeEntry& entry) noexcept {
  for (std::size_t i = 0; i < entry.slots.size(); ++i)
    if (entry.slots[i] != 0 && word_at(entry.slots[i]) != entry.values[i]) return false;
  return true;
}

void remember(NativeEntry& entry, const CudaCall& call, std::uintptr_t stack, const Walk& walk) {
  entry = {};
  entry.call = &call;
  entry.stack = stack;
  const auto known = std::min<std::size_t>(static_cast<std::size_t>(walk.callers->count), 2);
  for (std::size_t i = 0; i < known; ++i) {
    const std::uintptr_t slot = walk.slots[i];
    const bool is_there =
        slot > stack && slot - stack < kFarthest && word_at(slot) == walk.callers->addresses[i];
    if (!is_there && i == 0) return void(entry = {});
    if (!is_there) break;
    entry.slots[i] = slot;
    entry.values[i] = walk.callers->addresses[i];
  }
}
#endif

}  // namespace

bool is_passed_over_library(const char* path) noexcept {
  std::string_view name(path);
  name.remove_prefix(name.rfind('/') + 1);
  constexpr std::array<std::string_view, 24> kPassed{
      "libcuda.", "libcudart",    "libcupti",    "libtorch",    "libc10",     "libcublas",
      "libcudnn", "libcufft",     "libcusparse", "libcusolver", "libcurand",  "libnccl",
      "libnvrtc", "libnvJitLink", "libgradvane", "_native.",    "libstdc++.", "libgcc_s.",
      "libc.so",  "libm.so",      "libpthread",  "libgomp",     "ld-linux",   "libdl."};
  return std::ranges::any_of(kPassed,
                             [&](std::string_view begin) { return name.starts_with(begin); });
}

#if defined(__x86_64__) && defined(DLFO_STRUCT_HAS_EH_DBASE)

namespace {

/// libgcc looks libraries up without the loader's lock from its version 12 on, which it is known by.
bool unwinds_without_a_lock() {
  void* library = ::dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library != nullptr && ::dlvsym(library, "__extendhfsf2", "GCC_12.0.0") != nullptr;
}

}  // namespace

void NativeStack::look() noexcept {
  if (!unwinds_without_a_lock()) return;
  Dl_info found{};
  if (const void* runtime = ::dlsym(RTLD_DEFAULT, "_PyRuntime");
      runtime != nullptr && ::dladdr(runtime, &found) != 0)
    interpreter = found.dli_fbase;
  find_object = reinterpret_cast<FindObject>(::dlsym(RTLD_DEFAULT, "_dl_find_object"));
}

bool NativeStack::available() noexcept { return find_object.load() != nullptr; }

const void* NativeStack::find(ThreadTable& table, const CudaCall& call, Callers& callers) noexcept {
  const FindObject lookup = find_object.load(std::memory_order_relaxed);
  if (lookup == nullptr) return nullptr;
  const auto stack = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  constexpr std::size_t kWays = 4;
  const std::size_t set = (stack / 16 + call.id) % (ThreadTable::kNatives / kWays) * kWays;
  for (std::size_t way = 0; way < kWays; ++way) {
    const NativeEntry& entry = table.natives[set + way];
    if (entry.call == &call && entry.stack == stack && is_same_way(entry))
      return pointer_to(entry.values[0]);
  }
  ++table.met_natively;
  if (table.met_natively > kFreely && table.met_natively % kSparingly != 0) return nullptr;
  Walk walk{&callers};
  dl_find_object object{};
  if (lookup(reinterpret_cast<void*>(&take_frame), &object) == 0) walk.own = object.dlfo_map_start;
  (void)_Unwind_Backtrace(&take_frame, &walk);
  if (callers.count == 0) return nullptr;
  remember(table.natives[set + table.unwound++ % kWays], call, stack, walk);
  return pointer_to(callers.addresses[0]);
}

#else

void NativeStack::look() noexcept {}
bool NativeStack::available() noexcept { return false; }
const void* NativeStack::find(ThreadTable&, const CudaCall&, Callers&) noexcept { return nullptr; }

#endif

}  // namespace gradvane::collectors
