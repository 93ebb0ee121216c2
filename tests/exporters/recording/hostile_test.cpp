// Recordings that were made to hurt: what they cost is what honest files of their size cost.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "exporters/recording/codec.hpp"
#include "exporters/recording/deflate.hpp"
#include "exporters/recording/file_header.hpp"
#include "exporters/replay/recording.hpp"
#include "tests/exporters/recording/recorded_run.hpp"
#include "tests/exporters/recording/whole_use.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters::recording {
namespace {

using fakes::RecordedRun;

/// The most memory that this process has had, in MiB.
long peak() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

std::string with_frames(const record::ModelInfo& model, int steps, std::int64_t first_step) {
  std::string bytes = bytes_of(FileHeader{});
  Deflater deflater;
  std::string payload;
  encode(payload, model);
  std::uint64_t sequence = 1;
  append_frame(bytes, FrameType::model, sequence++, payload, deflater);
  for (int i = 0; i < steps; ++i) {
    record::StepRecord step;
    step.step = step.run_step = first_step + i;
    payload.clear();
    encode_step(payload, step, model.id);
    append_frame(bytes, FrameType::step, sequence++, payload, deflater);
  }
  return bytes;
}

TEST(HostileRecording, MillionsOfParametersInAFewKilobytesAreDamage) {
  const fakes::Scratch scratch;
  const auto path = scratch.path() / "made.gvrec";
  const pid_t child = ::fork();  // making it takes the memory that reading it must not
  if (child == 0) {
    record::ModelInfo model;
    model.id = 7;
    model.params.resize(1'000'000);
    std::ofstream(path, std::ios::binary) << with_frames(model, 200, 1);
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_LT(std::filesystem::file_size(path), 512U << 10);
  const long before = peak();
  const auto read = read_recording(path).recording;
  ASSERT_TRUE(read);
  EXPECT_EQ(read->damage.frames, 1) << "the model";
  EXPECT_EQ(read->steps.size(), 200U);
  fakes::use(*read);
  EXPECT_LT(peak() - before, 64) << "MiB";
}

TEST(HostileRecording, AModelThatIsThereIsReadInFull) {
  record::ModelInfo model;
  model.id = 7;
  model.params.resize(20'000);
  std::mt19937 random(1);
  for (auto& param : model.params) {
    param.name = "blocks." + std::to_string(random() % 1000) + ".mlp." + std::to_string(random());
    param.shape = {1024, 1024};
    param.dtype = "bfloat16";
    param.device = "cuda:0";
  }
  const auto read = read_recording_bytes(with_frames(model, 10, 1)).recording;
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->damage.any());
  EXPECT_EQ(read->steps.front().model->params.size(), 20'000U);
}

TEST(HostileRecording, StepsAtTheEndsOfTheirRangeDivideByNothing) {
  record::ModelInfo model;
  model.id = 7;
  model.params.resize(2'000);
  for (const std::int64_t first : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-3},
                                   std::numeric_limits<std::int64_t>::max() - 500}) {
    std::string bytes = with_frames(model, 400, first);
    const auto read = read_recording_bytes(std::move(bytes)).recording;
    ASSERT_TRUE(read);
    fakes::use(*read);
  }
}

TEST(HostileRecording, AFileThatIsMostlyAHoleCostsWhatLiesOnTheDisk) {
  const fakes::Scratch scratch;
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(20);
  ASSERT_EQ(run.recorder->export_incident(run.bad_step()), ExportResult::ok);
  const auto path = scratch.path() / "sparse.gvrec";
  std::filesystem::copy_file(run.recorder->last_file(), path);
  ASSERT_EQ(::truncate(path.c_str(), off_t{6} << 30), 0);
  const long before = peak();
  const auto read = read_recording(path);
  ASSERT_TRUE(read.recording) << read.error;
  EXPECT_EQ(read.recording->steps.size(), 21U);
  EXPECT_LT(peak() - before, 64) << "MiB";
}

}  // namespace
}  // namespace gradvane::exporters::recording
