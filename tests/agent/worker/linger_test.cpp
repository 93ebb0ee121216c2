// How long the end of a run waits for a scrape that nobody makes.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "tests/agent/training.hpp"

namespace gradvane {
namespace {

using test::poison;
using test::Training;

constexpr double kPlain = 0.5;
constexpr double kWithNews = 60;  // not waited for in vain but in a test that says so

Options with_endpoint(const std::string& name) {
  Options options = test::quiet();
  options.run = name;
  options.run_dir = testing::TempDir() + name + std::to_string(::getpid());
  options.port = 0;
  options.linger_seconds = kPlain;
  options.linger_incident_seconds = kWithNews;
  return options;
}

/// Seconds that `end` took after a few steps.
double seconds_to_end(const Options& options, bool goes_bad,
                      const std::function<void(std::unique_ptr<Agent>)>& end) {
  Training training;
  auto owned = std::make_unique<Agent>(options);
  Agent& agent = *owned;
  agent.attach(*training.model, *training.optimizer);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor loss = training.backward();
    if (goes_bad && step == 1)
      poison(training.gradients().at(0), 0, std::numeric_limits<double>::quiet_NaN());
    agent.after_backward(loss);
    (void)agent.step(*training.optimizer);
  }
  const auto begin = std::chrono::steady_clock::now();
  end(std::move(owned));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Seconds that the destructor took.
double seconds_to_end(const Options& options, bool goes_bad) {
  return seconds_to_end(options, goes_bad, [](std::unique_ptr<Agent> agent) { agent.reset(); });
}

TEST(Linger, NobodyIsWaitedForWhoWasNeverThere) {
  EXPECT_LT(seconds_to_end(with_endpoint("nobody"), true), kWithNews / 2);
}

TEST(Linger, AHealthyRunWaitsForTheScraperItExpectsOnlyAsLongAsItIsTold) {
  Options options = with_endpoint("healthy");
  options.expect_scraper = true;
  const double seconds = seconds_to_end(options, false);
  EXPECT_GE(seconds, kPlain);
  EXPECT_LT(seconds, kWithNews / 2);
}

TEST(Linger, ARunWithAnIncidentThatNobodyHasSeenWaitsLonger) {
  Options options = with_endpoint("bad");
  options.expect_scraper = true;
  options.linger_incident_seconds = 3 * kPlain;
  EXPECT_GE(seconds_to_end(options, true), 3 * kPlain);
}

TEST(Linger, WhoStopsTheAgentGoesOnAtOnce) {
  Options options = with_endpoint("stopped");
  options.expect_scraper = true;
  options.linger_seconds = kWithNews;
  const double seconds = seconds_to_end(options, true, [](const std::unique_ptr<Agent>& agent) {
    agent->stop();
    EXPECT_EQ(agent->status().state, "finished");
  });
  EXPECT_LT(seconds, kWithNews / 2);
}

std::atomic<int> interrupts{0};

TEST(Linger, CtrlCEndsTheWaitAndThenReachesTheProgram) {
  const auto former = ::signal(SIGINT, [](int) { ++interrupts; });
  Options options = with_endpoint("interrupted");
  options.expect_scraper = true;
  options.linger_seconds = kWithNews;
  std::atomic<bool> is_waiting{false};
  options.log = [&](std::string_view line) {
    if (line == "gradvane: waiting up to 60 s for one more scrape; Ctrl-C ends the wait")
      is_waiting = true;
  };
  std::thread person([&] {
    while (!is_waiting) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_EQ(interrupts, 0);
    ::kill(::getpid(), SIGINT);
  });
  EXPECT_LT(seconds_to_end(options, false), kWithNews / 2);
  person.join();
  EXPECT_EQ(interrupts, 1);
  ::signal(SIGINT, former);
}

}  // namespace
}  // namespace gradvane
