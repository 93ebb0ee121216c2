// What a run goes out through, without a worker.
#include "agent/outlets/outlets.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "agent/outlets/recordings.hpp"

namespace gradvane::agent {
namespace {

using exporters::recording::RingWriter;
using record::RunState;

/// A directory that is removed with what lies in it. Not with remove_all: torch exports one of its own,
/// which lacks what it needs.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "outlets-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder");
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(path_, ignored))
      std::filesystem::remove(entry.path(), ignored);
    std::filesystem::remove(path_, ignored);
  }
  Folder(const Folder&) = delete;  // it removes what it made
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

class OutletsTest : public testing::Test {
 protected:
  OutletsTest() {
    options_.port = -1;
    options_.run_dir = folder_.path().string();
    options_.log = [this](std::string_view line) { log_ += std::string(line) + "\n"; };
    run_.run = "test";
  }

  [[nodiscard]] bool has_ring() const {
    return std::filesystem::exists(RingWriter::path(options_.run_dir, "test", 0));
  }

  Folder folder_;
  Options options_;
  record::RunInfo run_;
  std::string log_;
};

TEST_F(OutletsTest, ASetUpThatGoesNoFurtherLeavesNoRing) {
  UserCallbacks callbacks(options_);
  {
    const Outlets outlets(options_, run_, callbacks);
    EXPECT_TRUE(has_ring());
  }
  EXPECT_FALSE(has_ring());
}

TEST_F(OutletsTest, ARefusedStepLogLeavesNoRing) {
  options_.step_log = "/proc/no/such/steps.jsonl";
  UserCallbacks callbacks(options_);
  EXPECT_THROW(Outlets(options_, run_, callbacks), std::runtime_error);
  EXPECT_FALSE(has_ring());
}

TEST_F(OutletsTest, TheRingOfARunThatFailedStays) {
  UserCallbacks callbacks(options_);
  {
    Outlets outlets(options_, run_, callbacks);
    outlets.set_run_state(RunState::failed, "out of memory");
    (void)outlets.exporters().finish(std::chrono::seconds(1));
  }
  EXPECT_TRUE(has_ring());
}

TEST_F(OutletsTest, ADirectoryThatWasNamedAndCannotBeUsedIsRefused) {
  options_.run_dir = "/proc/no/such/place";
  UserCallbacks callbacks(options_);
  EXPECT_THROW(Outlets(options_, run_, callbacks), std::runtime_error);
}

TEST_F(OutletsTest, ARecordingIsWrittenOncePerRequest) {
  UserCallbacks callbacks(options_);
  Outlets outlets(options_, run_, callbacks);
  Recordings recordings(outlets.recorder(), callbacks, /*requests=*/2);
  recordings.write_on_request(2);  // made before this run
  EXPECT_EQ(outlets.recorder()->counts().files, 0);
  recordings.write_on_request(3);
  recordings.write_on_request(3);
  EXPECT_EQ(outlets.recorder()->counts().files, 1);
  EXPECT_NE(log_.find("gradvane: recording: " + options_.run_dir), std::string::npos) << log_;
}

TEST_F(OutletsTest, ACallbackMayThrowAndIsNotCalledAfterTheStop) {
  int lines = 0;
  options_.log = [&](std::string_view) {
    ++lines;
    throw std::runtime_error("the user's");
  };
  UserCallbacks callbacks(options_);
  callbacks.log("one");
  EXPECT_EQ(lines, 1);
  callbacks.stop();
  callbacks.log("two");
  EXPECT_EQ(lines, 1);
}

}  // namespace
}  // namespace gradvane::agent
