// What python_stack_test.py loads into every Python: the walk, and threads, callbacks and exits to
// walk from.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectors/sync_ledger/places/python_stack.hpp"

namespace {

using gradvane::collectors::PythonStack;

PythonStack& stack() {
  static PythonStack one;
  return one;
}

// Compared at every round of probe_repeat: all that a callback reads.
struct Seen {
  const void* code = nullptr;
  PythonStack::Identity identity;
  int line = 0;
  std::array<char, 64> filename{};
  std::array<char, 64> function{};
  bool operator==(const Seen&) const = default;
};

int see(std::span<PythonStack::Frame> frames, std::vector<Seen>& seen) {
  const int count = stack().walk(frames);
  seen.assign(static_cast<std::size_t>(count), Seen{});
  for (std::size_t i = 0; i < seen.size(); ++i) {
    seen[i].code = frames[i].code;
    seen[i].identity = stack().identity(frames[i].code);
    seen[i].line = stack().line(frames[i]);
    stack().copy_filename(frames[i].code, seen[i].filename);
    stack().copy_function(frames[i].code, seen[i].function);
  }
  return count;
}

void say(int file, const char* what, int number) {
  std::array<char, 64> text{};
  const int size = std::snprintf(text.data(), text.size(), "%s %d\n", what, number);
  if (::write(file, text.data(), static_cast<std::size_t>(size)) != size) std::abort();
}

int walk_once() {
  std::array<PythonStack::Frame, 16> frames;
  return stack().walk(frames);
}

std::atomic<bool> threads_walk{false};
std::atomic<int> frames_at_end{-1};

// A library that is loaded before the program's own set-up, into any program.
[[gnu::constructor]] void begin() {
  if (std::getenv("GRADVANE_PROBE_AT_LOAD") == nullptr) return;
  say(STDERR_FILENO, "state", static_cast<int>(stack().look()));
  say(STDERR_FILENO, "frames", walk_once());
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int probe_look() { return static_cast<int>(stack().look()); }

const char* probe_version() { return stack().version(); }

// "line \x1f function \x1f file \x1e" a frame. `room` is what a name may take.
int probe_walk(int most, std::size_t room, char* out, std::size_t size) {
  std::vector<PythonStack::Frame> frames(static_cast<std::size_t>(most));
  const int count = stack().walk(frames);
  std::vector<char> name(room);
  std::string text;
  for (int i = 0; i < count; ++i) {
    const PythonStack::Frame& frame = frames[static_cast<std::size_t>(i)];
    text += std::to_string(stack().line(frame)) + '\x1f';
    text.append(name.data(), stack().copy_function(frame.code, name)) += '\x1f';
    text.append(name.data(), stack().copy_filename(frame.code, name)) += '\x1e';
  }
  if (text.size() >= size) return -1;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return count;
}

int probe_walk_in_new_thread() {
  int count = -1;
  std::thread([&count] { count = walk_once(); }).join();
  return count;
}

// With a thread state that claims to be another thread's.
int probe_walk_as_another_thread() {
  const auto* layout = gradvane::collectors::python_layout(stack().version());
  using State = void* (*)();
  auto* state = reinterpret_cast<State>(::dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"))();
  auto* id = reinterpret_cast<unsigned long*>(static_cast<char*>(state) + layout->thread_id);
  const unsigned long own = std::exchange(*id, *id + 1);
  const int count = walk_once();
  *id = own;
  return count;
}

void probe_say_frames() { say(STDOUT_FILENO, "frames while it ends", walk_once()); }

void probe_call(void (*callback)()) { callback(); }

// The rounds that read something other than the first one did.
int probe_repeat(int rounds) {
  std::vector<PythonStack::Frame> frames(8);
  std::vector<Seen> first;
  std::vector<Seen> now;
  int others = see(frames, first) > 0 ? 0 : rounds;
  for (int i = 1; i < rounds; ++i) {
    see(frames, now);
    if (now != first) ++others;
  }
  return others;
}

// Of the innermost frame's code: 0 its address is new, 1 the address had another identity before,
// 2 the same identity, 3 as 1 where all pointers and the line are the same.
int probe_seen_before() {
  static std::unordered_map<const void*, PythonStack::Identity> seen;
  std::array<PythonStack::Frame, 1> frames;
  if (stack().walk(frames) != 1) return -1;
  const PythonStack::Identity now = stack().identity(frames[0].code);
  const auto [place, is_new] = seen.try_emplace(frames[0].code, now);
  if (is_new) return 0;
  PythonStack::Identity before = std::exchange(place->second, now);
  if (before == now) return 2;
  before.content = now.content;
  return before == now ? 3 : 1;
}

// The minor version whose table would be taken for this text; 0 where none is.
int probe_table_of(const char* version) {
  const auto* layout = gradvane::collectors::python_layout(version);
  return layout == nullptr ? 0 : layout->minor;
}

// Whether the table of that version is confirmed by the Python of this process.
int probe_confirms(const char* version) {
  const auto* known = gradvane::collectors::python_layout(version);
  if (known == nullptr) return 0;
  auto layout = *known;
  return gradvane::collectors::confirm_layout(layout,
                                              {.code_type = ::dlsym(RTLD_DEFAULT, "PyCode_Type"),
                                               .frame_type = ::dlsym(RTLD_DEFAULT, "PyFrame_Type"),
                                               .text_type = ::dlsym(RTLD_DEFAULT, "PyUnicode_Type"),
                                               .version = ::dlsym(RTLD_DEFAULT, "Py_Version"),
                                               .runtime = ::dlsym(RTLD_DEFAULT, "_PyRuntime")})
             ? 1
             : 0;
}

// Called by a thread that the interpreter leaves behind: walks until the process ends. With pauses,
// as a walk that is under way when finalisation begins is not safe, and not what is tested.
void probe_walk_for_ever() {
  threads_walk = true;
  for (;;) {
    frames_at_end.store(walk_once(), std::memory_order_relaxed);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

// After main() has returned, and so after the interpreter was finalised.
void probe_walk_at_exit() {
  std::atexit([] {
    say(STDOUT_FILENO, "frames at exit", walk_once());
    if (!threads_walk) return;
    // A walk that saw the living interpreter may be the last until the thread has a core again.
    for (int look = 0; look < 10'000 && frames_at_end != 0; ++look)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    say(STDOUT_FILENO, "frames of the thread left behind", frames_at_end.load());
  });
}

// Nanoseconds a call, the best of some runs: the walk alone, or with the identity of each frame.
double probe_measure(int most, int rounds, int with_identity) {
  std::vector<PythonStack::Frame> frames(static_cast<std::size_t>(most));
  double best = 1e9;
  std::uint32_t keep = 0;
  for (int run = 0; run < 10; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; ++i) {
      const int count = stack().walk(frames);
      for (int j = 0; with_identity != 0 && j < count; ++j) {
        keep ^= stack().identity(frames[static_cast<std::size_t>(j)].code).content;
      }
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / rounds);
  }
  return keep == 1 ? best + 1e-9 : best;  // or the loop is dropped
}

}  // extern "C"
#pragma GCC visibility pop
