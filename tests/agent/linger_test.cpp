// How long the end of a run waits for a scrape that nobody makes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <string>

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

/// Seconds that stop() took after a few steps.
double seconds_to_stop(const Options& options, bool goes_bad) {
  Training training;
  Agent agent(options);
  agent.attach(*training.model, *training.optimizer);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor loss = training.backward();
    if (goes_bad && step == 1)
      poison(training.gradients().at(0), 0, std::numeric_limits<double>::quiet_NaN());
    agent.after_backward(loss);
    (void)agent.step(*training.optimizer);
  }
  const auto begin = std::chrono::steady_clock::now();
  agent.stop();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(Linger, NobodyIsWaitedForWhoWasNeverThere) {
  EXPECT_LT(seconds_to_stop(with_endpoint("nobody"), true), kWithNews / 2);
}

TEST(Linger, AHealthyRunWaitsForTheScraperItExpectsOnlyAsLongAsItIsTold) {
  Options options = with_endpoint("healthy");
  options.expect_scraper = true;
  const double seconds = seconds_to_stop(options, false);
  EXPECT_GE(seconds, kPlain);
  EXPECT_LT(seconds, kWithNews / 2);
}

TEST(Linger, ARunWithAnIncidentThatNobodyHasSeenWaitsLonger) {
  Options options = with_endpoint("bad");
  options.expect_scraper = true;
  options.linger_incident_seconds = 3 * kPlain;
  EXPECT_GE(seconds_to_stop(options, true), 3 * kPlain);
}

}  // namespace
}  // namespace gradvane
