#include "agent/process/process_watch.hpp"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/process/process_signals.hpp"

namespace gradvane::agent {
namespace {

constexpr std::chrono::milliseconds kLook{1};

// Leaked on purpose: handlers run after static destructors.
struct Registry {
  std::mutex mutex;
  std::vector<ProcessMember*> members;
  ProcessMember* awaited = nullptr;  ///< not among the members any more
  std::thread::id awaited_by;
  std::terminate_handler previous_terminate = nullptr;
  bool has_terminate = false;
  pid_t owner = 0;  ///< the process that installed the handlers
};
Registry& registry() {
  static Registry& only = *new Registry;
  return only;
}

void before_fork() {
  registry().mutex.lock();
  lock_signals_before_fork();
}
void after_fork_in_parent() {
  unlock_signals_in_parent();
  registry().mutex.unlock();
}
void after_fork_in_child() {
  for (ProcessMember* member : registry().members) member->in_forked_child();
  if (registry().awaited != nullptr) registry().awaited->in_forked_child();
  registry().members.clear();  // a child that trains makes agents of its own
  registry().awaited = nullptr;
  give_signals_back_in_child();
  registry().mutex.unlock();
}

/// Waits while `is_so`, which is looked at under the lock, and returns with the lock.
template <typename Predicate>
std::unique_lock<std::mutex> lock_when_not(Predicate is_so) {
  std::unique_lock lock(registry().mutex);
  while (is_so()) {
    lock.unlock();
    std::this_thread::sleep_for(kLook);
    lock.lock();
  }
  return lock;
}

/// The lock is not held while a member is waited for: other threads may still fork.
void end_all(bool failed, std::string_view reason) noexcept {
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    if (::getpid() != all.owner) return;
    note_process_ends();
    for (ProcessMember* member : all.members) member->process_ends(failed, reason);
  }
  const auto self = std::this_thread::get_id();
  for (;;) {
    auto lock = lock_when_not([&] { return all.awaited != nullptr && all.awaited_by != self; });
    if (all.members.empty() || all.awaited != nullptr) return;
    ProcessMember* member = all.members.back();
    all.members.pop_back();
    all.awaited = member;
    all.awaited_by = self;
    lock.unlock();
    member->await_end();
    lock.lock();
    all.awaited = nullptr;
  }
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
  Registry& all = registry();
  if (all.owner == 0) {
    ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    ::on_exit(on_process_exit, nullptr);
  }
  all.owner = ::getpid();  // which may be a forked child with agents of its own
  if (all.has_terminate) return;
  all.has_terminate = true;
  all.previous_terminate = std::set_terminate(on_terminate);
}

}  // namespace

void join_process_watch(ProcessMember& member) {
  const std::lock_guard lock(registry().mutex);
  install();
  registry().members.push_back(&member);
}

void leave_process_watch(ProcessMember& member) noexcept {
  Registry& all = registry();
  const auto lock = lock_when_not([&] { return all.awaited == &member; });
  std::erase(all.members, &member);
  if (!all.members.empty() || all.awaited != nullptr) return;
  if (!all.has_terminate || std::get_terminate() != on_terminate) return;
  std::set_terminate(all.previous_terminate);
  all.has_terminate = false;
}

}  // namespace gradvane::agent
