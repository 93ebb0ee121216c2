// A training run that ends in the way its first argument names. lifecycle_test.py looks at what is left
// of it: exit status, endpoint file and step log.
#include <ATen/Parallel.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/agent/training.hpp"

namespace {

using gradvane::Agent;
using gradvane::Options;
using gradvane::test::Training;

constexpr int kSteps = 20;

void train(Agent& agent, Training& training, int steps) {
  for (int step = 0; step < steps; ++step) agent.step(*training.optimizer, training.backward());
}

/// GNU OpenMP's threads do not live on in a child: torch hangs there unless it keeps to one, as data
/// loaders do.
void keep_to_one_thread() { at::set_num_threads(1); }

/// 0 where a child that has our agent but not its thread can use, and drop, the agent unharmed.
int use_in_child(Agent& agent, Training& training) {
  keep_to_one_thread();
  train(agent, training, 3);
  agent.log("child", 1);
  if (agent.flush(std::chrono::milliseconds(10))) return 1;
  if (!agent.url().empty() || agent.status().state != "off") return 2;
  agent.stop();
  return 0;
}

/// From now on the agent's worker sleeps in a handler for ever, as it would in a file that hangs. It has nothing left to do
/// before that, so it holds no lock.
void stick_the_worker(Agent& agent) {
  (void)agent.flush(std::chrono::seconds(30));
  ::signal(SIGTRAP, [](int) {
    for (;;) ::pause();
  });
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "gradvane") continue;
    ::tgkill(::getpid(), std::stoi(task.path().filename()), SIGTRAP);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return;
  }
  std::fprintf(stderr, "there is no worker\n");
  ::_exit(100);
}

void (*former)(int) = nullptr;
void pass_on(int signal) { former(signal); }

/// The signal that a child of ours died by when it got `signal`; 0 where it lived on.
int what_a_child_dies_by(int signal) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(signal);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/// The ways in which a signal meets an agent, or what is left of one.
std::optional<int> signalled(const std::string& how, Agent& agent, Training& training,
                             const Options& options) {
  if (how == "child") {
    const bool dies =
        what_a_child_dies_by(SIGTERM) == SIGTERM && what_a_child_dies_by(SIGUSR1) == SIGUSR1;
    // What it looks like if a handler swallows the signal.
    ::signal(SIGHUP, [](int) {});
    return dies && what_a_child_dies_by(SIGHUP) == 0 ? 0 : 1;
  }
  if (how == "stopped" || how == "stopped-usr1") {
    agent.stop();
    ::raise(how == "stopped" ? SIGTERM : SIGUSR1);
    return 1;
  }
  if (how == "second-agent") {
    agent.stop();
    Agent second(options);
    second.attach(*training.model, *training.optimizer);
    ::raise(SIGTERM);
    ::sleep(60);
    return 1;
  }
  if (how == "wrapped" || how == "wrapped-stopped") {
    former = ::signal(SIGTERM, pass_on);
    if (how == "wrapped-stopped") agent.stop();
    ::raise(SIGTERM);
    if (how == "wrapped-stopped") return 1;  // it dies before raise() returns
    ::sleep(60);
    return 1;
  }
  if (how == "stuck-sigterm" || how == "stuck-twice") {
    stick_the_worker(agent);
    ::raise(SIGTERM);
    if (how == "stuck-twice") ::raise(SIGTERM);
    ::sleep(60);
    return 1;
  }
  if (how == "stuck-exit") {
    stick_the_worker(agent);
    std::exit(3);
  }
  if (how == "stuck-stop") {
    stick_the_worker(agent);
    agent.stop();
    return 4;
  }
  return std::nullopt;
}

int run(const std::string& how) {
  Training training;
  Options options;
  options.run = "lifecycle";
  options.port = 0;
  options.linger_seconds = 0;
  options.linger_incident_seconds = 0;
  options.recorder_signal = gradvane::RecorderSignal::usr1;
  if (std::getenv("LIFECYCLE_LOG") == nullptr)  // as most programs have none
    options.log = [](std::string_view line) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    };
  Agent agent(options);
  agent.attach(*training.model, *training.optimizer);
  train(agent, training, kSteps);

  if (const auto status = signalled(how, agent, training, options)) return *status;
  if (how == "return") return 0;
  if (how == "exit0") std::exit(0);
  if (how == "exit3") std::exit(3);
  if (how == "fail") {
    agent.fail("the data ran out");
    return 0;
  }
  if (how == "caught") throw std::runtime_error("left the loop");  // main catches it
  if (how == "terminate")
    std::thread([] { throw std::runtime_error("nobody catches this"); }).join();
  if (how == "sigterm") {
    agent.flush();  // the worker has seen that it runs
    std::puts("ready");
    std::fflush(stdout);
    for (int step = kSteps + 1;; ++step) {
      train(agent, training, 1);
      if (const char* file =
              std::getenv("LIFECYCLE_STEPS"))  // what it did, whatever the agent knows of it
        std::ofstream(file) << step << '\n' << std::flush;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (how == "own-sigterm") {  // ours must not take the place of the program's own handler
    ::signal(SIGTERM, [](int) { ::_exit(7); });
    Agent second(options);
    ::raise(SIGTERM);
  }
  if (how == "fork") {
    const pid_t child = ::fork();
    if (child == 0) {
      const int bad = use_in_child(agent, training);
      if (bad != 0) ::_exit(bad);
      std::exit(0);  // runs the handlers that exit runs
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    train(agent, training, kSteps);  // the parent's run goes on
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
  }
  if (how == "fork-trains") {
    const pid_t child = ::fork();
    if (child == 0) {
      keep_to_one_thread();
      Options own = options;
      own.run = "lifecycle-child";
      Training again;
      Agent fresh(own);
      fresh.attach(*again.model, *again.optimizer);
      train(fresh, again, 5);
      fresh.stop();
      std::exit(fresh.status().steps == 5 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
  }
  std::fprintf(stderr, "unknown way to end: %s\n", how.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "caught: %s\n", error.what());
    return 5;
  }
}
