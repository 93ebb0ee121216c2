#include "examples/char_gpt/options.hpp"

#include <gmock/gmock.h>

#include <sstream>
#include <string>
#include <vector>

namespace char_gpt {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

struct Parsed {
  CommandLine command_line;
  std::string out;
  std::string err;
};

Parsed parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "char_gpt");
  std::ostringstream out;
  std::ostringstream err;
  auto command_line =
      parse_command_line(static_cast<int>(arguments.size()), arguments.data(), out, err);
  return {.command_line = std::move(command_line), .out = out.str(), .err = err.str()};
}

TEST(Options, TakeWhatIsNotGivenFromTheSize) {
  const auto small = parse({});
  ASSERT_TRUE(small.command_line.options);
  EXPECT_EQ(small.command_line.options->shape.name, "small");
  EXPECT_EQ(small.command_line.options->shape.steps, kSizePresets[1].steps);

  const auto tiny = parse({"--size", "tiny", "--steps", "7", "--lr=0.5", "--dropout", "0.25"});
  ASSERT_TRUE(tiny.command_line.options) << tiny.err;
  const auto& options = *tiny.command_line.options;
  EXPECT_EQ(options.shape.layers, kSizePresets[0].layers);
  EXPECT_EQ(options.shape.context, kSizePresets[0].context);
  EXPECT_EQ(options.shape.steps, 7);
  EXPECT_EQ(options.shape.learning_rate, 0.5);
  EXPECT_EQ(options.shape.dropout, 0.25);
  EXPECT_TRUE(options.agent);
  EXPECT_TRUE(options.evaluate);
  EXPECT_EQ(options.clipper, Clipper::agent);
}

TEST(Options, TakeSeveralFaultsEvenWhereOneBeginsWithAMinus) {
  const auto parsed = parse({"--fault", "-inf@3:a", "--fault", "nan@4,transient", "--size=tiny"});
  ASSERT_TRUE(parsed.command_line.options) << parsed.err;
  const auto& faults = parsed.command_line.options->faults;
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_EQ(faults[0], (Fault{.kind = "-inf", .step = 3, .param = "a"}));
  EXPECT_EQ(faults[1], (Fault{.kind = "nan", .step = 4, .transient = true}));
}

TEST(Options, TheLastOneOfTwoWins) {
  const auto parsed = parse({"--size=tiny", "--clip=2", "--size=gpt2", "--clip", "0"});
  ASSERT_TRUE(parsed.command_line.options) << parsed.err;
  EXPECT_EQ(parsed.command_line.options->shape.name, "gpt2");
  EXPECT_EQ(parsed.command_line.options->max_norm, 0);
}

TEST(Options, LetTorchClipWhereThereIsNoAgent) {
  const auto parsed = parse({"--no-agent", "--clip-with", "agent"});
  ASSERT_TRUE(parsed.command_line.options) << parsed.err;
  EXPECT_FALSE(parsed.command_line.options->agent);
  EXPECT_EQ(parsed.command_line.options->clipper, Clipper::torch);
}

TEST(Options, HelpListsEveryOptionAndExitsWithZero) {
  const auto parsed = parse({"--help"});
  EXPECT_FALSE(parsed.command_line.options);
  EXPECT_EQ(parsed.command_line.exit_code, 0);
  for (const char* option :
       {"--size",       "--steps",  "--batch",   "--context",   "--lr",       "--accumulate",
        "--dropout",    "--device", "--threads", "--log-every", "--no-agent", "--fault",
        "--gradvane-",  "--clip",   "--data",    "--seed",      "--json",     "--loss-log",
        "--step-times", "--sample", "--no-eval", "130"}) {
    EXPECT_THAT(parsed.out, HasSubstr(option));
  }
  EXPECT_THAT(parsed.err, IsEmpty());
}

TEST(Options, RefuseWithTheOptionTheValueAndWhatIsAllowed) {
  const auto expect_refused = [](std::vector<const char*> arguments, const auto& matcher) {
    const auto parsed = parse(arguments);
    EXPECT_FALSE(parsed.command_line.options) << arguments.front();
    EXPECT_EQ(parsed.command_line.exit_code, 2);
    EXPECT_THAT(parsed.err, matcher);
    EXPECT_THAT(parsed.out, IsEmpty());
  };
  expect_refused({"--size", "huge"},
                 AllOf(HasSubstr("--size"), HasSubstr("huge"), HasSubstr("gpt2")));
  expect_refused({"--steps", "0"}, AllOf(HasSubstr("--steps"), HasSubstr("0")));
  expect_refused({"--steps", "many"}, AllOf(HasSubstr("--steps"), HasSubstr("many")));
  expect_refused({"--no-eval", "--eval-every", "5"},
                 AllOf(HasSubstr("--no-eval"), HasSubstr("--eval-every")));
  expect_refused({"--lr", "-1"}, HasSubstr("--lr"));
  expect_refused({"--dropout", "2"}, HasSubstr("--dropout"));
  expect_refused({"--device", "tpu"}, AllOf(HasSubstr("tpu"), HasSubstr("cuda")));
  expect_refused({"--weights", "fp8"}, AllOf(HasSubstr("fp8"), HasSubstr("bf16")));
  expect_refused({"--clip-with", "hand"}, AllOf(HasSubstr("hand"), HasSubstr("torch")));
  expect_refused({"--wat"}, HasSubstr("--wat"));
  expect_refused({"file.txt"}, HasSubstr("file.txt"));
  expect_refused({"--fault", "nan"}, HasSubstr("KIND@STEP"));
  expect_refused({"--steps", "10", "--fault", "nan@11"}, HasSubstr("the run ends at step 10"));
  expect_refused({"--fault", "nan@1:a", "--fault", "inf@1:a"}, HasSubstr("another fault"));
}

}  // namespace
}  // namespace char_gpt
