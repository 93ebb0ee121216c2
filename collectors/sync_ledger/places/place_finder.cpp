#include "collectors/sync_ledger/places/place_finder.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

namespace gradvane::collectors {
namespace {

bool has(std::string_view text, std::string_view part) noexcept {
  return text.find(part) != std::string_view::npos;
}

constexpr std::uint32_t kOwnerBits = 3;  ///< of CodeEntry::what, plus one; above them the serial

CodeOwner owner_in(const CodeEntry& entry) noexcept {
  return static_cast<CodeOwner>((entry.what & ((1U << kOwnerBits) - 1)) - 1);
}
std::uint32_t serial_in(const CodeEntry& entry) noexcept { return entry.what >> kOwnerBits; }

std::size_t hash_of(const void* pointer, std::uint32_t more = 0) noexcept {
  auto bits = reinterpret_cast<std::uintptr_t>(pointer) + more * std::uintptr_t{0x9E3779B1U};
  return (bits * 0x9E3779B97F4A7C15U) >> 40;
}

template <std::size_t N>
void copy_text(std::array<char, N>& to, const char* from) noexcept {
  const std::size_t length = std::min(::strnlen(from, N), N - 1);
  std::memcpy(to.data(), from, length);
  to[length] = '\0';
}

/// A file of torch's, by its path within the package.
bool is_of_profiler(std::string_view inside_torch) noexcept {
  return inside_torch.starts_with("/profiler/") || inside_torch.starts_with("/autograd/profiler");
}

/// A place that this thread has not met before; kOtherPlace where there is no room.
template <typename Fill>
PlaceId make_place(PlaceStore& places, Place::From from, Fill fill) noexcept {
  Place place{};
  place.from = from;
  (void)::prctl(PR_GET_NAME, place.thread.data());
  fill(place);
  return places.add(place);
}

/// The place that `make` gives for a key, remembered in the thread's table.
template <typename Make>
PlaceId remembered(ThreadTable& table, const void* key, std::int32_t offset, std::uint32_t serial,
                   Make make) noexcept {
  const auto more = static_cast<std::uint32_t>(offset) ^ serial << 16;
  std::size_t at = hash_of(key, more);
  for (;; ++at) {
    SiteEntry& entry = table.sites[at % ThreadTable::kSites];
    if (entry.code == key && entry.offset == offset && entry.serial == serial) return entry.place;
    if (entry.code != nullptr) continue;
    if (table.sites_used + 1 >= ThreadTable::kSites) {  // one stays empty, so that searches end
      table.drop(record::SyncDrop::sites);
      return kOtherPlace;
    }
    ++table.sites_used;
    const PlaceId place = make();
    if (place == kOtherPlace) table.drop(record::SyncDrop::sites);
    entry = {key, offset, serial, place};
    return place;
  }
}

}  // namespace

CodeOwner owner_of_file(std::string_view path) noexcept {
  const std::size_t packages =
      std::max(path.rfind("site-packages/") + 1, path.rfind("dist-packages/") + 1);
  if (packages > 0) {
    const std::string_view inside = path.substr(packages - 1 + std::strlen("site-packages/"));
    constexpr std::string_view kTorch = "torch";
    if (inside.starts_with(kTorch) && is_of_profiler(inside.substr(kTorch.size())))
      return CodeOwner::profiler;
    const bool passed = inside.starts_with("torch/") || inside.starts_with("gradvane/") ||
                        inside.starts_with("triton/");
    return passed ? CodeOwner::torch : CodeOwner::user;
  }
  // What torch.compile and torch.fx write for a user's lines.
  if (has(path, "/torchinductor_") || path.starts_with("<eval_with_key>")) return CodeOwner::torch;
  if (path.starts_with("<frozen ")) return CodeOwner::library;
  const std::size_t lib = path.rfind("/lib/python3");
  return lib != std::string_view::npos || has(path, ".zip/") ? CodeOwner::library : CodeOwner::user;
}

void PlaceFinder::pass_over(std::string_view directory) noexcept {
  while (directory.ends_with('/')) directory.remove_suffix(1);
  const std::size_t used = directories_.load(std::memory_order_relaxed);
  if (directory.empty() || used == passed_over_.size()) return;
  for (std::size_t i = 0; i < used; ++i)
    if (std::string_view(passed_over_[i].path.data(), passed_over_[i].length) == directory) return;
  Directory& entry = passed_over_[used];
  if (directory.size() + 1 > entry.path.size()) return;
  std::memcpy(entry.path.data(), directory.data(), directory.size());
  entry.length = directory.size();
  directories_.store(used + 1, std::memory_order_release);
}

PlaceFinder::Found PlaceFinder::find(ThreadTable& table, const CudaCall& call,
                                     const char* scope) noexcept {
  Found found;
  if (python_.state() == PythonState::readable) found = find_python(table);
  if (scope != nullptr) return {scope_place(table, scope), found.in_profiler};
  if (found.is_known) return found;
  return {native_place(table, call), false};
}

PlaceFinder::Found PlaceFinder::find_python(ThreadTable& table) noexcept {
  const PythonStack::Reading reading(python_);
  Frames frames;
  Found found;
  struct Chosen {
    int frame = -1;
    std::uint32_t serial = 0;
  };
  // Without a line of the user's, as in a thread of PyTorch's own: where PyTorch began.
  Chosen user;
  Chosen torch;
  Chosen library;
  int seen = 0;
  // The user's frame is nearly always among the first few.
  for (const int window : {kUsualFrames, kFrames}) {
    const int count = python_.walk(std::span(frames).first(static_cast<std::size_t>(window)));
    for (; seen < count && user.frame < 0; ++seen) {
      const CodeEntry* code = code_of(table, frames[static_cast<std::size_t>(seen)].code);
      if (code == nullptr) return found;
      const CodeOwner owner = owner_in(*code);
      found.in_profiler |= owner == CodeOwner::profiler;
      const Chosen here{seen, serial_in(*code)};
      if (owner == CodeOwner::user)
        user = here;
      else if (owner != CodeOwner::library)
        torch = here;
      else if (library.frame < 0)
        library = here;
    }
    if (user.frame < 0 && count == window && window != kFrames) continue;
    const Chosen& chosen = user.frame >= 0 ? user : torch.frame >= 0 ? torch : library;
    found.is_known = chosen.frame >= 0;
    if (found.is_known)
      found.place = python_place(table, frames, count, chosen.frame, chosen.serial);
    return found;
  }
  return found;
}

PlaceId PlaceFinder::python_place(ThreadTable& table, const Frames& frames, int count, int chosen,
                                  std::uint32_t serial) noexcept {
  const PythonStack::Frame& frame = frames[static_cast<std::size_t>(chosen)];
  return remembered(table, frame.code, frame.offset, serial, [&] {
    return make_place(places_, Place::From::python, [&](Place& place) {
      Frames whole = frames;
      const int deep = count < kFrames ? python_.walk(whole) : count;
      for (int i = chosen; i < deep && place.lines < Place::kLines; ++i) {
        const PythonStack::Frame& at = whole[static_cast<std::size_t>(i)];
        if (i > chosen && owner_of(at.code) != CodeOwner::user) continue;
        Place::Line& line = place.line[place.lines++];
        (void)python_.copy_filename(at.code, line.file);
        (void)python_.copy_function(at.code, line.function);
        line.number = python_.line(at);
      }
    });
  });
}

PlaceId PlaceFinder::scope_place(ThreadTable& table, const char* scope) noexcept {
  return remembered(table, scope, -1, 0, [&] {
    return make_place(places_, Place::From::scope, [&](Place& place) {
      place.lines = 1;
      copy_text(place.line[0].function, scope);
    });
  });
}

PlaceId PlaceFinder::native_place(ThreadTable& table, const CudaCall& call) noexcept {
  NativeStack::Callers callers;
  const void* caller = NativeStack::find(table, call, callers);
  if (caller == nullptr) return thread_place(table);
  return remembered(table, caller, -2, 0, [&] {
    return make_place(places_, Place::From::native, [&](Place& place) {
      place.lines = static_cast<std::uint8_t>(callers.count);
      place.addresses = callers.addresses;
    });
  });
}

PlaceId PlaceFinder::thread_place(ThreadTable& table) noexcept {
  return remembered(table, &table, -3, 0,
                    [&] { return make_place(places_, Place::From::thread, [](Place&) {}); });
}

/// What is known of a code object; null where there is no room for it.
const CodeEntry* PlaceFinder::code_of(ThreadTable& table, const void* code) noexcept {
  const PythonStack::Identity now = python_.identity(code);
  std::size_t at = hash_of(code);
  for (;; ++at) {
    CodeEntry& entry = table.codes[at % ThreadTable::kCodes];
    if (entry.code == code && entry.identity == now) return &entry;
    if (entry.code != nullptr && entry.code != code) continue;
    if (entry.code == nullptr) {
      if (table.codes_used + 1 >= ThreadTable::kCodes) {
        table.drop(record::SyncDrop::sites);
        return nullptr;
      }
      ++table.codes_used;
    }
    const auto owner = static_cast<std::uint32_t>(owner_of(code));
    entry = {code, now, ++table.serials << kOwnerBits | (owner + 1)};
    return &entry;
  }
}

CodeOwner PlaceFinder::owner_of(const void* code) const noexcept {
  std::array<char, 512> buffer{};
  const std::size_t length = python_.copy_filename(code, buffer);
  const std::string_view path(buffer.data(), length);
  const std::size_t directories = directories_.load(std::memory_order_acquire);
  const CodeOwner owner = owner_of_file(path);
  if (owner == CodeOwner::profiler) return owner;
  for (std::size_t i = 0; i < directories; ++i) {
    const std::string_view passed(passed_over_[i].path.data(), passed_over_[i].length);
    if (!path.starts_with(passed) || path.substr(passed.size(), 1) != "/") continue;
    const std::string_view inside = path.substr(passed.size());
    const bool in_profiler = passed.ends_with("/torch") && is_of_profiler(inside);
    return in_profiler ? CodeOwner::profiler : CodeOwner::torch;
  }
  return owner;
}

}  // namespace gradvane::collectors
