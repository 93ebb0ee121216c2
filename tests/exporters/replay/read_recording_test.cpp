// Reading what may be anything: damaged files, made-up files, files that are no recordings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <random>

#include "exporters/recording/deflate.hpp"
#include "exporters/recording/file_header.hpp"
#include "exporters/recording/wire.hpp"
#include "exporters/replay/recording.hpp"
#include "tests/exporters/recording/every_field.hpp"
#include "tests/exporters/recording/mutation.hpp"
#include "tests/exporters/recording/recorded_run.hpp"
#include "tests/exporters/recording/whole_use.hpp"

namespace gradvane::exporters::recording {
namespace {

using fakes::from_to;
using fakes::Mutation;
using fakes::RecordedRun;
using fakes::run_steps;
using testing::HasSubstr;

std::string bytes_in(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A file of an incident, with everything that there is in one.
std::string snapshot() {
  RecordedRun run;
  EXPECT_EQ(run.start(), ExportResult::ok);
  run.steps(12);
  (void)run.recorder->export_syncs(std::make_shared<record::SyncSummary>(fakes::fake_syncs(4)));
  (void)run.recorder->export_incident(run.bad_step());
  run.steps(3);
  (void)run.recorder->set_run_state(record::RunState::failed, "why");
  (void)run.finish();
  return bytes_in(run.recorder->last_file());
}

/// A ring that went round.
std::string ring() {
  RecordedRun run({.directory = {}, .disk_bytes = 32 << 10});
  EXPECT_EQ(run.start(), ExportResult::ok);
  run.steps(100);
  return bytes_in(run.ring());
}

TEST(ReadRecording, SaysWhatIsNoRecording) {
  const fakes::Scratch scratch;
  const auto error_of = [](const std::filesystem::path& path) {
    const auto [recording, error] = read_recording(path);
    EXPECT_FALSE(recording) << path;
    return error;
  };
  EXPECT_THAT(error_of(scratch.path() / "none"), HasSubstr("No such file or directory"));
  EXPECT_THAT(error_of(scratch.path()), HasSubstr("this is a directory"));
  EXPECT_THAT(error_of("/dev/zero"), HasSubstr("not a file"));
  ASSERT_EQ(::mkfifo((scratch.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of(scratch.path() / "pipe"), HasSubstr("not a file"));
  std::ofstream(scratch.path() / "empty").flush();
  EXPECT_THAT(error_of(scratch.path() / "empty"), HasSubstr("empty"));
  std::ofstream(scratch.path() / "text") << "{\"step\":1}\n";
  EXPECT_THAT(error_of(scratch.path() / "text"), HasSubstr("no recording of Gradvane"));
  std::ofstream(scratch.path() / "bare", std::ios::binary) << bytes_of(FileHeader{});
  EXPECT_THAT(error_of(scratch.path() / "bare"), HasSubstr("nothing in it"));
}

TEST(ReadRecording, RefusesAFormatOfTheFuture) {
  std::string bytes = snapshot();
  bytes.replace(0, kFileHeaderSize, bytes_of(FileHeader{.version = kFormatVersion + 1}));
  EXPECT_THAT(read_recording_bytes(bytes).error, HasSubstr("read it with a newer one"));
}

TEST(ReadRecording, ReadsOnWithoutAHeader) {
  for (std::string bytes : {snapshot(), ring()}) {
    const auto whole = run_steps(*read_recording_bytes(bytes).recording);
    bytes[20] ^= 1;
    const auto read = read_recording_bytes(bytes).recording;
    ASSERT_TRUE(read);
    EXPECT_TRUE(read->damage.header);
    // Of a ring, the one frame that lies across the end is lost then.
    EXPECT_GE(run_steps(*read).size(), whole.size() - 2);
  }
}

TEST(ReadRecording, LosesTheFrameThatWasDamagedAndNoOther) {
  const std::string whole = snapshot();
  const auto before = read_recording_bytes(whole).recording;
  ASSERT_FALSE(before->damage.any());
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole;
    bytes[kFileHeaderSize + random() % (bytes.size() - kFileHeaderSize)] ^=
        static_cast<char>(1 << random() % 8);
    const auto read = read_recording_bytes(bytes).recording;
    ASSERT_TRUE(read);
    fakes::use(*read);
    ASSERT_GE(read->steps.size(), before->steps.size() - 1);
    ASSERT_GT(read->damage.bytes_skipped, 0U) << "every byte of a frame is checked";
  }
}

TEST(ReadRecording, ReadsWhatIsThereOfAFileThatWasCutOff) {
  const std::string whole = snapshot();
  std::size_t steps = 0;
  for (std::size_t size = 0; size < whole.size(); size += 37) {
    const auto read = read_recording_bytes(whole.substr(0, size)).recording;
    if (!read) continue;
    fakes::use(*read);
    ASSERT_GE(read->steps.size(), steps) << "more bytes, fewer steps";
    steps = read->steps.size();
  }
  EXPECT_EQ(steps, 16U);
}

/// Frames with any payload at all, and checksums that hold.
std::string frame_of(std::uint8_t type, std::string_view payload, std::uint64_t sequence) {
  std::string frame;
  Deflater deflater;
  append_frame(frame, static_cast<FrameType>(type), sequence, payload, deflater);
  return frame;
}

/// The frames of a file, unpacked.
std::vector<std::pair<std::uint8_t, std::string>> payloads_in(const std::string& bytes) {
  std::vector<std::pair<std::uint8_t, std::string>> payloads;
  FrameScanner scanner(bytes);
  for (auto frame = scanner.next(); frame; frame = scanner.next())
    payloads.emplace_back(frame->header.type, payload_of(*frame, 1 << 24).value());
  return payloads;
}

// AddressSanitizer makes the use of a recording some fifty times slower.
#ifdef __SANITIZE_ADDRESS__
constexpr int kSeedStep = 17;
#else
constexpr int kSeedStep = 5;  // odd, and no multiple of 3: seeds choose by both
#endif

TEST(ReadRecording, SurvivesFilesThatWereChangedAnywhere) {
  const std::string first = snapshot();
  const std::string second = ring();
  int readable = 0;
  for (unsigned seed = 0; seed < 3000; seed += kSeedStep) {
    Mutation mutate(seed);
    std::string bytes = seed % 2 == 0 ? first : second;
    mutate(bytes, seed % 3 == 0 ? first : second);
    const auto [read, error] = read_recording_bytes(bytes);
    ASSERT_NE(read == nullptr, error.empty());
    if (!read) continue;
    ++readable;
    fakes::use(*read);
  }
  EXPECT_GT(readable, 2000 / kSeedStep) << "or nothing was looked at";
}

TEST(ReadRecording, SurvivesPayloadsThatWereChangedUnderAChecksumThatHolds) {
  const std::string first = snapshot();
  const auto payloads = payloads_in(first);
  ASSERT_GT(payloads.size(), 30U);
  std::int64_t refused = 0;
  std::int64_t steps = 0;
  for (unsigned seed = 0; seed < 2000; seed += kSeedStep) {
    Mutation mutate(seed);
    std::string bytes = bytes_of(FileHeader{});
    for (std::size_t i = 0; i < payloads.size(); ++i) {
      auto [type, payload] = payloads[i];
      if (mutate.below(3) == 0) mutate(payload, payloads[mutate.below(payloads.size())].second);
      if (mutate.below(40) == 0) type = static_cast<std::uint8_t>(mutate.below(12));
      bytes += frame_of(type, payload, i + 1);
    }
    const auto read = read_recording_bytes(bytes, {.record_bytes = 1 << 20}).recording;
    ASSERT_TRUE(read);
    fakes::use(*read);
    refused += read->damage.frames;
    steps += std::ssize(read->steps);
  }
  EXPECT_GT(refused, 2000 / kSeedStep) << "the changes are such that a reader has to notice";
  EXPECT_GT(steps, 10'000 / kSeedStep) << "and such that much is read all the same";
}

TEST(ReadRecording, UnpacksNoMoreThanAFrameSaysAndNoMoreThanItMay) {
  const std::string zeros(std::size_t{8} << 20, '\0');
  Deflater deflater;
  std::string packed;
  ASSERT_TRUE(deflater.append(packed, zeros, Packing::words));
  EXPECT_EQ(inflate_exactly(packed, zeros.size()), zeros);
  EXPECT_FALSE(inflate_exactly(packed, zeros.size() - 1));
  EXPECT_FALSE(inflate_exactly(packed, zeros.size() + 1));
  EXPECT_FALSE(inflate_exactly(packed, 1000));
  EXPECT_FALSE(inflate_exactly(packed.substr(0, 100), 1U << 30)) << "a hundred bytes hold no more";

  const std::string bytes = bytes_of(FileHeader{}) + frame_of(2, zeros, 1) + frame_of(8, "", 2);
  const auto read = read_recording_bytes(bytes, {.payload_bytes = 1 << 20}).recording;
  ASSERT_TRUE(read);
  EXPECT_EQ(read->damage.frames, 1);
}

TEST(ReadRecording, KeepsTheNewestStepsWhereThereAreTooMany) {
  const auto read = read_recording_bytes(snapshot(), {.steps = 5}).recording;
  ASSERT_TRUE(read);
  EXPECT_EQ(run_steps(*read), from_to(12, 16));
  EXPECT_EQ(read->damage.steps_left_out, 11);
}

TEST(ReadRecording, GivesUpOnAFileThatIsMadeToKeepItBusy) {
  // Every header is right, and every payload is all the rest.
  std::string bytes = bytes_of(FileHeader{});
  const std::string frame = frame_of(6, "x", 1);
  constexpr int kFrames = 40'000;
  constexpr int kHeader = kFrameHeaderSize;
  for (int i = 0; i < kFrames; ++i) {
    std::string header = frame.substr(0, kFrameHeaderSize - 4);
    put_u32(header, 16, static_cast<std::uint32_t>((kFrames - i - 1) * kHeader));
    append_u32(header, crc32_of(header));
    bytes += header;
  }
  bytes += frame;
  FrameScanner scanner(bytes);
  while (scanner.next()) {
  }
  EXPECT_TRUE(scanner.gave_up());
  EXPECT_LT(scanner.damaged(), 20);
}

TEST(ReadRecording, StepsOverFramesOfANewerVersion) {
  const auto read = read_recording_bytes(snapshot() + frame_of(77, "to come", 1000)).recording;
  ASSERT_TRUE(read);
  EXPECT_EQ(read->damage.unknown_frames, 1);
  EXPECT_EQ(read->damage.frames, 0);
  EXPECT_EQ(read->steps.size(), 16U);
}

}  // namespace
}  // namespace gradvane::exporters::recording
