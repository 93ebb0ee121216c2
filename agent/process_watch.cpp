#include "agent/process_watch.hpp"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

namespace gradvane::agent {
namespace {

// Leaked on purpose: handlers run after static destructors.
struct Registry {
  std::mutex mutex;
  std::vector<ProcessMember*> members;
  std::terminate_handler previous_terminate = nullptr;
  pid_t owner = 0;  ///< the process that installed the handlers
};
Registry& registry() {
  static Registry& only = *new Registry;
  return only;
}

std::atomic<bool> got_sigterm{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // written by a signal handler
// Counted apart from the registry: a worker that is done must not wait for a thread that holds the
// registry's lock while it waits for that worker.
std::atomic<int> requests{0};
static_assert(std::atomic<int>::is_always_lock_free);
std::atomic<int> members_joined{0};
std::atomic<int> members_done{0};

void on_sigterm(int /*signal*/) { got_sigterm.store(true); }

void on_request(int /*signal*/) { requests.fetch_add(1); }

void before_fork() { registry().mutex.lock(); }
void after_fork_in_parent() { registry().mutex.unlock(); }
void after_fork_in_child() {
  for (ProcessMember* member : registry().members) member->in_forked_child();
  registry().members.clear();  // a child that trains makes agents of its own
  members_joined = members_done = 0;
  got_sigterm = false;
  registry().mutex.unlock();
}

void end_all(bool failed, std::string_view reason) noexcept {
  const std::lock_guard lock(registry().mutex);
  if (::getpid() != registry().owner) return;
  for (ProcessMember* member : registry().members) member->process_ends(failed, reason);
}

void on_process_exit(int status, void* /*unused*/) {
  if (status == 0)
    end_all(false, "exit");
  else
    end_all(true, "exit with status " + std::to_string(status));
}

std::string current_exception_text() {
  const std::exception_ptr current = std::current_exception();
  if (current == nullptr) return "std::terminate";
  try {
    std::rethrow_exception(current);
  } catch (const std::exception& error) {
    return std::string("uncaught exception: ") + error.what();
  } catch (...) {
    return "uncaught exception";
  }
}

[[noreturn]] void on_terminate() {
  end_all(true, current_exception_text());
  if (registry().previous_terminate != nullptr) registry().previous_terminate();
  ::abort();
}

void install() {
  registry().owner = ::getpid();
  ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  ::on_exit(on_process_exit, nullptr);
  registry().previous_terminate = std::set_terminate(on_terminate);
}

/// False where somebody else handles it, and not by `handler` either.
bool install_handler(int signal, void (*handler)(int)) {
  struct sigaction current{};
  if (::sigaction(signal, nullptr, &current) != 0) return false;
  if (current.sa_handler == handler) return true;
  if (current.sa_handler != SIG_DFL) return false;
  struct sigaction ours{};
  ours.sa_handler = handler;
  ours.sa_flags = SA_RESTART;  // training must not see its system calls fail
  ::sigemptyset(&ours.sa_mask);
  return ::sigaction(signal, &ours, nullptr) == 0;
}

void die_by_sigterm() noexcept {
  struct sigaction current{};
  // Somebody else's handler may have taken over meanwhile: then it is theirs to decide.
  if (::sigaction(SIGTERM, nullptr, &current) != 0 || current.sa_handler != on_sigterm) return;
  ::signal(SIGTERM, SIG_DFL);
  ::kill(::getpid(), SIGTERM);
}

}  // namespace

void join_process_watch(ProcessMember& member, bool handle_sigterm) {
  const std::lock_guard lock(registry().mutex);
  if (registry().owner == 0) install();
  if (registry().owner != ::getpid()) registry().owner = ::getpid();  // a forked child with agents
  if (handle_sigterm) (void)install_handler(SIGTERM, on_sigterm);
  registry().members.push_back(&member);
  ++members_joined;
}

void leave_process_watch(ProcessMember& member) noexcept {
  const std::lock_guard lock(registry().mutex);
  members_joined -= static_cast<int>(std::erase(registry().members, &member));
}

bool sigterm_received() noexcept { return got_sigterm.load(); }

bool take_recording_requests(int signal) noexcept { return install_handler(signal, on_request); }

int recording_requests() noexcept { return requests.load(); }

void done_with_sigterm() noexcept {
  if (++members_done >= members_joined) die_by_sigterm();
}

}  // namespace gradvane::agent
