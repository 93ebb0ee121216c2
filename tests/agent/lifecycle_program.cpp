// A training run that ends in the way its first argument names. lifecycle_test.py looks at what is left
// of it: exit status, endpoint file and step log.
#include <ATen/Parallel.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
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

int run(const std::string& how) {
  Training training;
  Options options;
  options.run = "lifecycle";
  options.port = 0;
  options.linger_seconds = 0;
  options.linger_incident_seconds = 0;
  options.log = [](std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  };
  Agent agent(options);
  agent.attach(*training.model, *training.optimizer);
  train(agent, training, kSteps);

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
    for (;;) {
      train(agent, training, 1);
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
