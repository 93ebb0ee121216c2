#include "agent/public/config_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/public/option_table.hpp"
#include "tests/agent/public/option_sources.hpp"

namespace gradvane::agent {
namespace {

using test::Variables;
using test::with;
using test::YamlFile;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

class ConfigFileTest : public testing::Test {
 protected:
  void start(const std::string& text, const Variables& variables = {}, Options code = {}) {
    file_.write(text);
    code.config = file_.path();
    open(resolve(code, with(variables)));
  }
  void open(const ResolvedOptions& resolved) { config_ = ConfigFile(resolved, resolved.settings); }
  void write(const std::string& text) {
    file_.write(text);
    // Where the clock of the file system is coarse, the same size at the same moment is the same file.
    fs::last_write_time(file_.path(),
                        fs::last_write_time(file_.path()) + std::chrono::seconds(++written_));
  }
  /// As two looks have it: a file that is being written is left alone.
  ConfigChange changed(double now = 1000) {
    EXPECT_FALSE(config_.look(now));
    const auto change = config_.look(now);
    EXPECT_TRUE(change);
    EXPECT_FALSE(config_.look(now)) << "a change is news once";
    return change.value_or(ConfigChange{});
  }
  static record::Setting setting(const ConfigChange& change, std::string_view key) {
    const auto found = std::ranges::find(change.settings, key, &record::Setting::key);
    return found == change.settings.end() ? record::Setting{} : *found;
  }

  YamlFile file_{""};
  int written_ = 0;
  ConfigFile config_;
};

TEST_F(ConfigFileTest, AFileThatStaysIsNoNews) {
  start("loss_sigma: 8\n");
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(config_.look(1000));
  EXPECT_FALSE(ConfigFile().look(1000)) << "there is none";
}

TEST_F(ConfigFileTest, AnEditBetweenTheStartAndTheFirstLookIsTaken) {
  file_.write("loss_sigma: 8\n");
  Options code;
  code.config = file_.path();
  const ResolvedOptions resolved = resolve(code, with({}));
  write("loss_sigma: 9\n");
  open(resolved);
  EXPECT_EQ(changed().options.loss_sigma, 9);
}

TEST_F(ConfigFileTest, WhatMayChangeHoldsFromNowOnAndSaysSinceWhen) {
  start("loss_sigma: 8\nweight_every: 100\n");
  write("loss_sigma: 9.5\nweight_every: 100\nstall_seconds: 60\n");
  const ConfigChange change = changed(1234);
  EXPECT_TRUE(change.has_changed);
  EXPECT_EQ(change.options.loss_sigma, 9.5);
  EXPECT_EQ(change.options.stall_seconds, 60);
  EXPECT_EQ(change.options.weight_every, 100);
  EXPECT_THAT(change.lines, ElementsAre("config: stall_seconds is 60 from now on; it was 300",
                                        "config: loss_sigma is 9.5 from now on; it was 8"));
  EXPECT_EQ(setting(change, "loss_sigma").since, 1234);
  EXPECT_EQ(setting(change, "loss_sigma").source, "yaml");
  EXPECT_EQ(setting(change, "weight_every").since, 0);
}

TEST_F(ConfigFileTest, AKeyThatIsTakenOutGetsItsValueFromTheCodeOrItsDefault) {
  Options code;
  code.loss_sigma = 7;
  start("loss_sigma: 8\nloss_ratio: 9\n", {}, code);
  write("# nothing\n");
  const ConfigChange change = changed();
  EXPECT_EQ(change.options.loss_sigma, 7);
  EXPECT_EQ(setting(change, "loss_sigma").source, "code");
  EXPECT_EQ(change.options.loss_ratio, Options().loss_ratio);
  EXPECT_EQ(setting(change, "loss_ratio").source, "default");
}

TEST_F(ConfigFileTest, OptionsThatSetSomethingUpStayAndALineSaysSoOnce) {
  start("mode: lagged\n");
  write("mode: immediate\nloss_sigma: 8\n");
  ConfigChange change = changed();
  EXPECT_EQ(change.options.mode, Mode::lagged);
  EXPECT_EQ(change.options.loss_sigma, 8);
  EXPECT_EQ(setting(change, "mode").value, "lagged");
  EXPECT_THAT(
      change.lines,
      ElementsAre("config: mode cannot change while the run lasts; it will at the next start",
                  HasSubstr("loss_sigma is 8")));
  write("mode: immediate\nloss_sigma: 9\n");
  change = changed();
  EXPECT_THAT(change.lines, ElementsAre(HasSubstr("loss_sigma is 9")));
  write("mode: lagged\nloss_sigma: 9\n");
  for (int look = 0; look < 3; ++look) EXPECT_FALSE(config_.look(1000)) << "as it is";
}

TEST_F(ConfigFileTest, EveryOptionOfTheTableEitherChangesOrIsRefused) {
  // Policies change only where one acts from the start.
  Options code;
  code.on_nonfinite = NonfinitePolicy::stop;
  code.skip_norm = 1;
  for (const OptionSpec& option : option_table()) {
    if (option.key == "config") continue;
    SCOPED_TRACE(option.key);
    for (const char* value :
         {"7", "0.5", "on", "off", "skip", "stop", "none", "agree", "immediate", "some_text",
          "usr1", "local0", "http://127.0.0.1:1", "a=b", "require"}) {
      Options options;
      if (!option.set(options, value) || option.get(options) == option.get(code)) continue;
      start("", {}, code);
      write(std::string(option.key) + ": '" + value + "'\n");
      const ConfigChange change = changed();
      ASSERT_THAT(change.lines, testing::SizeIs(1));
      EXPECT_EQ(change.has_changed, may_change(option.key)) << change.lines[0];
      break;
    }
  }
}

TEST_F(ConfigFileTest, ASecretIsNotSaid) {
  start("");
  write("token: a-secret-of-32-characters-at-least\n");
  EXPECT_THAT(changed().lines,
              ElementsAre(AllOf(HasSubstr("token cannot change"), Not(HasSubstr("secret")))));
}

TEST_F(ConfigFileTest, AFaultInTheFileChangesNothingAndItsCorrectionDoes) {
  start("loss_sigma: 8\n");
  for (const char* fault : {"loss_sigma: [\n", "loss_sigma: high\n", "los_sigma: 9\n", "- 1\n",
                            "loss_sigma: 9\nloss_ratio: x\n"}) {
    SCOPED_TRACE(fault);
    write(fault);
    const ConfigChange change = changed();
    EXPECT_FALSE(change.has_changed);
    EXPECT_THAT(change.lines, ElementsAre(HasSubstr("all options stay as they are")));
  }
  write("loss_sigma: 9\n");
  EXPECT_THAT(changed().lines, ElementsAre("config: loss_sigma is 9 from now on; it was 8"));
}

TEST_F(ConfigFileTest, WhatCannotBeReadChangesNothingAndIsNotWaitedFor) {
  start("loss_sigma: 8\n");
  fs::remove(file_.path());
  EXPECT_THAT(changed().lines, ElementsAre(HasSubstr("is gone")));
  ASSERT_EQ(::mkfifo(file_.path().c_str(), 0600), 0);
  EXPECT_THAT(changed().lines, ElementsAre(HasSubstr("is no file")));
  fs::remove(file_.path());
  write("loss_sigma: 9\n#" + std::string(2 << 20, '.'));
  EXPECT_THAT(changed().lines, ElementsAre(HasSubstr("is larger than a megabyte")));
  write("loss_sigma: 9\n");
  EXPECT_TRUE(changed().has_changed);
}

TEST_F(ConfigFileTest, AFileThatIsBeingWrittenIsLeftAlone) {
  start("loss_sigma: 8\n");
  for (int i = 0; i < 5; ++i) {
    write(std::string(static_cast<std::size_t>(i), '#'));
    EXPECT_FALSE(config_.look(1000)) << "it is another one each time";
  }
  write("loss_sigma: 9\n");
  EXPECT_EQ(changed().options.loss_sigma, 9);
}

TEST_F(ConfigFileTest, TheEnvironmentAndTheCommandLineStayStronger) {
  Options code;
  code.command_line = {"loss_ratio=4"};
  start("", {{"GRADVANE_LOSS_SIGMA", "5"}}, code);
  write("loss_sigma: 9\nloss_ratio: 9\ndead_after: 9\n");
  const ConfigChange change = changed();
  EXPECT_EQ(change.options.loss_sigma, 5);
  EXPECT_EQ(change.options.loss_ratio, 4);
  EXPECT_THAT(change.lines, ElementsAre(HasSubstr("dead_after is 9")));
}

TEST_F(ConfigFileTest, TheEnvironmentIsThatOfTheStart) {
  Variables variables{{"GRADVANE_LOSS_SIGMA", "5"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}};
  int asked = 0;
  Options code;
  code.config = file_.path();
  open(resolve(code, [&](const std::string& name) -> std::optional<std::string> {
    ++asked;
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  }));
  const int before = asked;
  variables.clear();
  write("dead_after: 9\n");
  const ConfigChange change = changed();
  EXPECT_EQ(asked, before) << "a program may change its environment on another thread";
  EXPECT_EQ(change.options.loss_sigma, 5);
  EXPECT_EQ(change.options.rank, 1);
}

TEST_F(ConfigFileTest, ARelativePathIsThatOfTheStart) {
  const fs::path file = file_.path();
  const fs::path before = fs::current_path();
  fs::current_path(file.parent_path());
  Options code;
  code.config = file.filename();
  open(resolve(code, with({})));
  fs::current_path("/");
  write("loss_sigma: 9\n");
  EXPECT_EQ(changed().options.loss_sigma, 9);
  fs::current_path(before);
}

TEST_F(ConfigFileTest, TheNameThatTheRunGotStays) {
  Options code;
  code.config = file_.path();
  const ResolvedOptions resolved = resolve(code, with({}));
  std::vector<record::Setting> shown = resolved.settings;
  std::ranges::find(shown, "run", &record::Setting::key)->value = "train";
  config_ = ConfigFile(resolved, shown);
  write("loss_sigma: 9\n");
  EXPECT_EQ(setting(changed(), "run").value, "train");
}

TEST_F(ConfigFileTest, AConfigMapThatKubernetesReplacesIsRead) {
  // A link to a link to a folder, which is replaced as a whole.
  const fs::path folder = file_.path() + ".d";
  const auto version = [&](const std::string& name, const std::string& text) {
    fs::create_directories(folder / name);
    std::ofstream(folder / name / "gradvane.yaml") << text;
    fs::create_symlink(name, folder / "new");
    fs::rename(folder / "new", folder / "..data");
  };
  fs::create_directories(folder);
  version("..1", "loss_sigma: 8\n");
  fs::create_symlink("..data/gradvane.yaml", folder / "gradvane.yaml");
  Options code;
  code.config = folder / "gradvane.yaml";
  open(resolve(code, with({})));
  version("..2", "loss_sigma: 9\n");
  EXPECT_EQ(changed().options.loss_sigma, 9);
  // Not remove_all: torch exports one of its own, which crashes.
  for (const char* name :
       {"..1/gradvane.yaml", "..1", "..2/gradvane.yaml", "..2", "..data", "gradvane.yaml"})
    fs::remove(folder / name);
  fs::remove(folder);
}

TEST_F(ConfigFileTest, APolicyMayChangeWhereOneActsFromTheStart) {
  start("on_nonfinite: skip\nskip_norm: 5\nsnapshot_every: 10\n");
  write(
      "on_nonfinite: rollback\non_divergence: stop\nskip_norm: 6\nskip_limit: 2\nsnapshot_every: "
      "10\n");
  const ConfigChange change = changed();
  EXPECT_EQ(change.options.on_nonfinite, NonfinitePolicy::rollback);
  EXPECT_EQ(change.options.on_divergence, DivergencePolicy::stop);
  EXPECT_EQ(change.options.skip_norm, 6);
  EXPECT_EQ(change.options.skip_limit, 2);
  EXPECT_THAT(change.lines,
              testing::Contains("config: on_nonfinite is rollback from now on; it was skip"));
}

TEST_F(ConfigFileTest, APolicyStaysWhereTheRunIsNotSetUpForAnotherAndALineSaysWhy) {
  const auto refused = [&](const std::string& begin, const std::string& then,
                           const std::string& why, const Options& code = {}) {
    start(begin, {}, code);
    write(then);
    const ConfigChange change = changed();
    EXPECT_FALSE(change.has_changed) << then;
    EXPECT_THAT(change.lines,
                ElementsAre(AllOf(HasSubstr(" cannot change while the run lasts, as " + why),
                                  HasSubstr("; it will at the next start"))));
  };
  refused("{}\n", "on_nonfinite: skip\n", "this run began with watch");
  refused("on_divergence: stop\n", "on_divergence: stop\non_nonfinite: skip\n",
          "this run began with watch");
  refused("on_nonfinite: skip\n", "on_nonfinite: rollback\n", "this run keeps no snapshots");
  refused("on_nonfinite: skip\n", "on_nonfinite: skip\nskip_norm: 3\n", "it was 0 at the start");
  Options ranks;
  ranks.world_size = 2;
  ranks.rank = 0;
  refused("on_nonfinite: skip\n", "on_nonfinite: stop\n",
          "the ranks of this run do not agree on steps (ranks: agree)", ranks);
}

TEST_F(ConfigFileTest, ARankThatAgreesWithOthersHasThePolicyOfRank0) {
  Options code;
  code.world_size = 2;
  code.rank = 1;
  code.local_rank = 1;
  code.ranks = RankAgreement::agree;
  start("on_nonfinite: skip\n", {}, code);
  write("on_nonfinite: stop\n");
  (void)config_.look(1000);
  EXPECT_FALSE(config_.look(1000)) << "its own file does not count";
  ranks::Policy policy = ranks::policy_of(code);
  policy.on_nonfinite = NonfinitePolicy::stop;
  policy.skip_limit = code.skip_limit;
  const ConfigChange change = config_.follow(policy, 1234);
  EXPECT_THAT(change.lines,
              ElementsAre("config: on_nonfinite is stop from now on, as on rank 0; it was skip"));
  EXPECT_EQ(change.options.on_nonfinite, NonfinitePolicy::stop);
  EXPECT_EQ(setting(change, "on_nonfinite").source, "rank 0");
  EXPECT_EQ(setting(change, "on_nonfinite").since, 1234);
  EXPECT_FALSE(config_.follow(policy, 1300).has_changed) << "once";
}

}  // namespace
}  // namespace gradvane::agent
