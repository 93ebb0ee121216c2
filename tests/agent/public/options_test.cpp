#include "agent/public/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "agent/public/option_table.hpp"
#include "tests/agent/public/option_samples.hpp"
#include "tests/agent/public/option_sources.hpp"

namespace gradvane::agent {
namespace {

using test::option_samples;
using test::OptionSample;
using test::Variables;
using test::with;
using test::YamlFile;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal_of(const Options& code, const Variables& variables = {}) {
  try {
    (void)resolve(code, with(variables));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "(nothing was refused)";
}

std::string refusal_of_yaml(const std::string& text) {
  const YamlFile file(text);
  Options code;
  code.config = file.path();
  return refusal_of(code);
}

const record::Setting& setting(const ResolvedOptions& resolved, std::string_view key) {
  const auto found = std::ranges::find(resolved.settings, key, &record::Setting::key);
  if (found == resolved.settings.end()) throw std::logic_error("no setting " + std::string(key));
  return *found;
}

std::string quoted(std::string_view value) { return "'" + std::string(value) + "'"; }

TEST(Options, WithoutAnySourceEverythingIsDefault) {
  const ResolvedOptions resolved = resolve({}, with({}));
  ASSERT_EQ(resolved.settings.size(), option_table().size());
  for (std::size_t i = 0; i < resolved.settings.size(); ++i) {
    const OptionSpec& option = option_table()[i];
    EXPECT_EQ(resolved.settings[i].key, option.key);
    EXPECT_EQ(resolved.settings[i].source, "default") << option.key;
    EXPECT_EQ(resolved.settings[i].value, option.get(resolved.options));
  }
  EXPECT_EQ(resolved.options.rank, 0);
  EXPECT_EQ(resolved.options.local_rank, 0);
  EXPECT_EQ(resolved.options.world_size, 1);
}

/// Every option from every set of sources: the strongest holds `one`, all weaker ones `other`.
TEST(Options, TheCommandLineBeatsTheEnvironmentBeatsYamlBeatsCodeBeatsTheDefault) {
  constexpr unsigned kSources = 4;
  constexpr const char* kNames[kSources] = {"code", "yaml", "environment", "command line"};
  const YamlFile empty_one("");
  const YamlFile empty_other("# nothing\n");
  for (const OptionSample& sample : option_samples()) {
    const bool is_config = sample.key == "config";
    const std::string one = is_config ? empty_one.path() : std::string(sample.one);
    const std::string other = is_config ? empty_other.path() : std::string(sample.other);
    const std::string key(sample.key);
    for (unsigned given = 1; given < 1U << kSources; ++given) {
      if (is_config && (given & 2U) != 0) continue;  // cannot be in the file itself
      const unsigned strongest = std::bit_width(given) - 1;
      const auto value_in = [&](unsigned source) { return source == strongest ? one : other; };
      Options code;
      if (key == "address") code.insecure = true;
      if (key == "compare_replicas_every" || key == "check_before_reduction")
        code.ranks = RankAgreement::agree;  // which they need
      if (key == "skip_on_device") code.on_nonfinite = NonfinitePolicy::skip;
      Variables variables;
      if ((given & 1U) != 0) {
        ASSERT_TRUE(find_option(key)->set(code, value_in(0)));
      }
      const YamlFile file((given & 2U) != 0 ? key + ": \"" + value_in(1) + "\"\n" : "");
      if (!is_config) code.config = file.path();
      if ((given & 4U) != 0) variables[environment_name(key)] = value_in(2);
      if ((given & 8U) != 0) code.command_line = {key + "=" + value_in(3)};

      const ResolvedOptions resolved = resolve(code, with(variables));
      EXPECT_EQ(setting(resolved, key).value, one) << key << ", sources " << given;
      EXPECT_EQ(setting(resolved, key).source, kNames[strongest]) << key << ", sources " << given;
      EXPECT_EQ(find_option(key)->get(resolved.options), one);
    }
  }
}

TEST(Options, EveryBadValueIsRefusedWithItsKeyItsValueItsPlaceAndWhatIsAllowed) {
  for (const OptionSample& sample : option_samples()) {
    const std::string key(sample.key);
    const std::string allowed = "allowed: " + std::string(find_option(key)->allowed);
    for (const std::string_view bad : sample.bad) {
      const std::string said = key + " = " + quoted(bad);
      EXPECT_THAT(refusal_of({}, {{environment_name(key), std::string(bad)}}),
                  AllOf(HasSubstr(environment_name(key) + ": " + said), HasSubstr(allowed)));
      Options code;
      code.command_line = {key + "=" + std::string(bad)};
      EXPECT_THAT(refusal_of(code), AllOf(HasSubstr("command line: " + said), HasSubstr(allowed)));
      const YamlFile file(key + ": \"" + std::string(bad) + "\"\n");
      code = {};
      code.config = file.path();
      EXPECT_THAT(refusal_of(code),
                  AllOf(HasSubstr(file.path() + ": " + said), HasSubstr(allowed)));
    }
  }
}

TEST(Options, CodeMayNotHoldWhatTextMayNotSay) {
  const auto refused = [](auto change) {
    Options code;
    change(code);
    return refusal_of(code);
  };
  EXPECT_THAT(refused([](Options& o) { o.port = 65536; }),
              AllOf(HasSubstr("Options::port = '65536'"), HasSubstr("allowed: -1 to 65535")));
  EXPECT_THAT(refused([](Options& o) { o.ring_slots = -1; }), HasSubstr("Options::ring_slots"));
  EXPECT_THAT(refused([](Options& o) { o.groups = "depth:x"; }), HasSubstr("Options::groups"));
  EXPECT_THAT(refused([](Options& o) { o.address = ""; }), HasSubstr("Options::address"));
  EXPECT_THAT(refused([](Options& o) { o.stall_seconds = -1; }), HasSubstr("'-1'"));
  EXPECT_THAT(refused([](Options& o) { o.exploding_threshold = NAN; }), HasSubstr("'nan'"));
  EXPECT_THAT(refused([](Options& o) { o.exploding_threshold = INFINITY; }), HasSubstr("'inf'"));
}

TEST(Options, APolicyThatOneOfSeveralRanksWouldCarryOutAloneIsRefused) {
  const auto said = [](const std::map<std::string, std::string>& options) {
    Options code;
    for (const auto& [key, value] : options) code.command_line.push_back(key + "=" + value);
    return refusal_of(code);
  };
  const std::string nothing = "(nothing was refused)";
  EXPECT_THAT(said({{"on_nonfinite", "rollback"}, {"world_size", "2"}}),
              HasSubstr("on_nonfinite: rollback on several ranks needs ranks that act together"));
  EXPECT_THAT(said({{"on_divergence", "stop"}, {"world_size", "2"}}),
              HasSubstr("set ranks to agree, or world_size to 1 if this process trains alone"));
  EXPECT_EQ(said({{"on_divergence", "stop"}, {"world_size", "2"}, {"ranks", "agree"}}), nothing);
  EXPECT_EQ(said({{"on_divergence", "rollback"}}), nothing);
  EXPECT_EQ(said({{"on_nonfinite", "stop"}, {"world_size", "2"}}), nothing)
      << "all ranks see the same gradients";
}

TEST(Options, APolicyForDivergencesNeedsADetectorOfThem) {
  const auto said = [](const std::string& detect) {
    Options code;
    code.on_divergence = DivergencePolicy::stop;
    code.detect = detect;
    return refusal_of(code);
  };
  EXPECT_THAT(said("none"), HasSubstr("on_divergence acts on incidents that detect leaves out"));
  EXPECT_THAT(said("random_guess"), HasSubstr("with random_guess_loss"))
      << "it is judged by that only";
  EXPECT_EQ(said("grad_exploding"), "(nothing was refused)");
}

TEST(Options, AnUnknownKeyIsRefusedWhereItIsGiven) {
  Options code;
  code.command_line = {"wieght_every=5"};
  EXPECT_THAT(refusal_of(code), AllOf(HasSubstr("command line: unknown option 'wieght_every'"),
                                      HasSubstr("docs/configuration.md")));
  EXPECT_THAT(refusal_of_yaml("runn: x\n"), HasSubstr(".yaml: unknown option 'runn'"));
  for (const char* argument : {"=1", "log=x", "command_line=x", "weight every=1"}) {
    code.command_line = {argument};
    EXPECT_THAT(refusal_of(code), HasSubstr("unknown option")) << argument;
  }
}

TEST(Options, AnArgumentWithoutAValueIsRefused) {
  Options code;
  code.command_line = {"port"};
  EXPECT_THAT(refusal_of(code), HasSubstr("command line: 'port' must be key=value"));
}

TEST(Options, TheCommandLineTakesDashesAndTheLastOfTwo) {
  Options code;
  code.command_line = {"weight-every=5", "weight_every=6", "run=a=b"};
  const ResolvedOptions resolved = resolve(code, with({}));
  EXPECT_EQ(resolved.options.weight_every, 6);
  EXPECT_EQ(resolved.options.run, "a=b");
}

TEST(Options, AYamlFileThatCannotBeReadIsRefusedByName) {
  const std::string missing = testing::TempDir() + "gradvane_no_such_file.yaml";
  for (const std::string& path : {missing, testing::TempDir()}) {
    Options code;
    code.config = path;
    EXPECT_THAT(refusal_of(code), HasSubstr("config: cannot read '" + path + "'"));
    EXPECT_THAT(refusal_of({}, {{"GRADVANE_CONFIG", path}}), HasSubstr("cannot read"));
  }
}

TEST(Options, AYamlFileThatHoldsSomethingElseThanOptionsIsRefused) {
  EXPECT_THAT(refusal_of_yaml("- run\n- port\n"), HasSubstr("must hold a map of options"));
  EXPECT_THAT(refusal_of_yaml("just words\n"), HasSubstr("must hold a map of options"));
  EXPECT_THAT(refusal_of_yaml("run: [a\n"), HasSubstr("cannot read"));
  EXPECT_THAT(refusal_of_yaml("run: a: b\n"), HasSubstr("cannot read"));
  EXPECT_THAT(refusal_of_yaml("port: [1, 2]\n"), HasSubstr("port must be one value"));
  EXPECT_THAT(refusal_of_yaml("port: {a: 1}\n"), HasSubstr("port must be one value"));
  EXPECT_THAT(refusal_of_yaml("[a, b]: 1\n"), HasSubstr("not a word"));
  EXPECT_THAT(refusal_of_yaml("config: other.yaml\n"),
              HasSubstr("config cannot be set in the file"));
  EXPECT_THAT(refusal_of_yaml("port:\n"), HasSubstr("port = ''"));
}

TEST(Options, AnEmptyYamlFileSaysNothing) {
  for (const char* text : {"", "# a comment\n", "---\n", "{}\n", "run:\n"}) {
    const YamlFile file(text);
    Options code;
    code.config = file.path();
    EXPECT_EQ(resolve(code, with({})).options.run, "") << text;
  }
}

TEST(Options, GroupsMayBeAMapInYaml) {
  const YamlFile file("groups:\n  attention: '\\.attn\\.'\n  rest: .\n");
  Options code;
  code.config = file.path();
  EXPECT_EQ(resolve(code, with({})).options.groups, "attention=\\.attn\\.;rest=.;");
}

TEST(Options, AMapOfGroupsThatTheRuleCannotHoldIsRefused) {
  EXPECT_THAT(refusal_of_yaml("groups: {a: [x, y]}\n"), HasSubstr("groups must map each name"));
  EXPECT_THAT(refusal_of_yaml("groups: {a: }\n"), HasSubstr("groups must map each name"));
  EXPECT_THAT(refusal_of_yaml("groups: {a: {b: c}}\n"), HasSubstr("groups must map each name"));
  EXPECT_THAT(refusal_of_yaml("groups: {a: 'x;y'}\n"), HasSubstr("'a: x;y' is not allowed"));
  EXPECT_THAT(refusal_of_yaml("groups: {'a=b': x}\n"), HasSubstr("'a=b: x' is not allowed"));
  EXPECT_THAT(refusal_of_yaml("groups: {a: '('}\n"), HasSubstr("groups = 'a=(;' is not allowed"));
  EXPECT_THAT(refusal_of_yaml("groups: {}\n"), HasSubstr("groups = ''"));
}

TEST(Options, RanksComeFromTheLauncherWhereNobodySaysOtherwise) {
  const Variables launcher = {{"RANK", "5"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "8"}};
  ResolvedOptions resolved = resolve({}, with(launcher));
  EXPECT_EQ(resolved.options.rank, 5);
  EXPECT_EQ(resolved.options.local_rank, 1);
  EXPECT_EQ(resolved.options.world_size, 8);
  EXPECT_EQ(setting(resolved, "rank").value, "5");
  EXPECT_EQ(setting(resolved, "rank").source, "environment");

  Options code;
  code.rank = 2;
  code.command_line = {"local-rank=0"};
  resolved = resolve(code, with(launcher));
  EXPECT_EQ(resolved.options.rank, 2);
  EXPECT_EQ(resolved.options.local_rank, 0);
  EXPECT_EQ(resolved.options.world_size, 8);
  EXPECT_EQ(setting(resolved, "rank").source, "code");

  Variables ours = launcher;
  ours["GRADVANE_RANK"] = "7";
  EXPECT_EQ(resolve({}, with(ours)).options.rank, 7);
  EXPECT_EQ(resolve({}, with({{"WORLD_SIZE", "0"}})).options.world_size, 1);
}

TEST(Options, TheRunIdComesFromTheLauncherUnlessItIsGiven) {
  const Variables srun = {{"SLURM_JOB_ID", "1234"}, {"SLURM_STEP_ID", "0"}};
  EXPECT_EQ(resolve({}, with({})).options.run_id, "");
  const ResolvedOptions resolved = resolve({}, with(srun));
  EXPECT_EQ(resolved.options.run_id, "1234.0");
  EXPECT_EQ(setting(resolved, "run_id").source, "environment");
  Options code;
  code.run_id = "mine";
  EXPECT_EQ(resolve(code, with(srun)).options.run_id, "mine");
  Variables ours = srun;
  ours["GRADVANE_RUN_ID"] = "pod-7";
  EXPECT_EQ(resolve(code, with(ours)).options.run_id, "pod-7");
}

TEST(Options, ARankThatIsNoNumberIsRefusedUnlessItIsGivenElsewhere) {
  for (const char* bad : {"", "first", "-1", "1.5", "2x", "99999999999999999999"}) {
    for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE"})
      EXPECT_THAT(refusal_of({}, {{name, bad}}),
                  AllOf(HasSubstr(std::string(name) + " = " + quoted(bad)),
                        HasSubstr("allowed: a whole number of at least 0")));
    Options code;
    code.rank = 1;
    EXPECT_EQ(resolve(code, with({{"RANK", bad}})).options.rank, 1);
  }
}

TEST(Options, SwitchedOffFromOutsideNothingElseCanFail) {
  Options code;
  code.config = "no_such_file.yaml";
  code.port = 1'000'000;
  code.command_line = {"nonsense", "unknown=1"};
  for (const char* off : {"off", "false", "no", "0"}) {
    const ResolvedOptions resolved =
        resolve(code, with({{"GRADVANE", off}, {"GRADVANE_MODE", "?"}, {"RANK", "x"}}));
    EXPECT_FALSE(resolved.options.enabled);
    EXPECT_EQ(setting(resolved, "enabled").value, "off");
    EXPECT_EQ(setting(resolved, "enabled").source, "environment");
    EXPECT_EQ(resolved.options.rank, 0);
    EXPECT_EQ(resolved.settings.size(), option_table().size());
  }
  code.command_line.emplace_back("enabled=off");
  EXPECT_EQ(setting(resolve(code, with({})), "enabled").source, "command line");
}

TEST(Options, TheSwitchItselfObeysThePrecedenceAndIsChecked) {
  Options code;
  code.command_line = {"enabled=on"};
  EXPECT_TRUE(resolve(code, with({{"GRADVANE", "off"}})).options.enabled);
  EXPECT_THAT(refusal_of({}, {{"GRADVANE", "never"}}), HasSubstr("GRADVANE: enabled = 'never'"));
  code = {};
  code.enabled = false;
  EXPECT_FALSE(resolve(code, with({})).options.enabled);
  EXPECT_TRUE(resolve(code, with({{"GRADVANE", "on"}})).options.enabled);
}

TEST(Options, TheProcessEnvironmentIsLookedUpWhenAsked) {
  const Environment environment = process_environment();
  ::setenv("GRADVANE_OPTIONS_TEST", "value", 1);
  EXPECT_EQ(environment("GRADVANE_OPTIONS_TEST"), "value");
  ::unsetenv("GRADVANE_OPTIONS_TEST");
  EXPECT_EQ(environment("GRADVANE_OPTIONS_TEST"), std::nullopt);
}

TEST(Options, TheExampleOfTheDocumentationWorks) {
  const char* root = std::getenv("GRADVANE_SOURCE_DIR");
  ASSERT_NE(root, nullptr) << "set by ctest";
  std::ifstream page(std::filesystem::path(root) / "docs" / "configuration.md");
  std::stringstream text;
  text << page.rdbuf();
  const std::string begin = "```yaml\n";
  const std::size_t start = text.str().find(begin);
  ASSERT_NE(start, std::string::npos);
  const std::size_t from = start + begin.size();
  const YamlFile file(text.str().substr(from, text.str().find("```", from) - from));
  Options code;
  code.config = file.path();
  const ResolvedOptions resolved = resolve(code, with({}));
  EXPECT_GE(std::ranges::count(resolved.settings, "yaml", &record::Setting::source), 3);
}

TEST(TakeArguments, RemovesOursAndLeavesTheRestInOrder) {
  std::vector<std::string> words = {
      "train",      "--gradvane-port=0", "--steps",        "10", "--gradvane-run=a=b",
      "--gradvane", "-gradvane-x=1",     "--gradvane-mode"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int argc = static_cast<int>(words.size());
  EXPECT_THAT(take_arguments(argc, argv.data()), ElementsAre("port=0", "run=a=b", "mode"));
  ASSERT_EQ(argc, 5);
  EXPECT_THAT(std::vector<std::string>(argv.begin(), argv.begin() + argc),
              ElementsAre("train", "--steps", "10", "--gradvane", "-gradvane-x=1"));
  EXPECT_EQ(argv[5], nullptr);
}

TEST(TakeArguments, LeavesTheProgramsNameAndNothingAlone) {
  std::string name = "--gradvane-train=1";
  char* argv[] = {name.data(), nullptr};
  int argc = 1;
  EXPECT_TRUE(take_arguments(argc, argv).empty());
  EXPECT_EQ(argc, 1);
  char* none[] = {nullptr};
  argc = 0;
  EXPECT_TRUE(take_arguments(argc, none).empty());
  EXPECT_EQ(argc, 0);
}

}  // namespace
}  // namespace gradvane::agent
