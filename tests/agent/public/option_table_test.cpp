#include "agent/public/option_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <string_view>

#include "tests/agent/public/option_samples.hpp"

namespace gradvane::agent {
namespace {

using test::option_samples;
using test::OptionSample;

/// Members of Options that only code can set: callbacks, and the command line itself.
constexpr std::size_t kCodeOnly = 3;

/// How many members Options has. A member more or less, and this does not compile: give it a row in
/// agent/public/option_table.cpp and in tests/agent/public/option_samples.hpp, and a name here.
std::size_t members() {
  const Options options;
  const auto& [enabled, run, run_id, config, run_dir, address, token, web_config, insecure,
               allowed_hosts, port, share_port, mode, weight_every, update_sample, groups,
               max_groups, group_series, max_series, vanishing_threshold, exploding_threshold,
               ring_slots, history_steps, step_log, step_log_max_bytes, stall_seconds,
               stall_pause_seconds, linger_seconds, linger_incident_seconds, expect_scraper,
               start_step, rank, local_rank, world_size, flops_per_token, peak_flops, sync,
               sync_budget, sync_budget_after, sync_threshold_us, sync_profiler, sync_library,
               sync_report, detect, cooldown_seconds, loss_window, loss_sigma, loss_ratio,
               loss_absolute, loss_in_a_row, random_guess_loss, exploding_factor, vanishing_share,
               drift_threshold, dead_after, overflow_streak, cost_budget, on_nonfinite,
               on_divergence, skip_limit, skip_norm, skip_on_device, found_inf_for_scaler,
               snapshot_every, snapshot_seconds, snapshot_budget, rollback_limit, rollback_window,
               rollback_optimizer, rollback_lr_factor, rollback_device_sync, ranks,
               check_before_reduction, compare_replicas_every, alertmanager_url,
               alertmanager_http_config, alertmanager_labels, recorder, recorder_dir,
               recorder_steps, recorder_memory_bytes, recorder_disk_bytes, recorder_kept,
               recorder_signal, trace_nonfinite, norm_exchange, handle_sigterm, log, on_incident,
               command_line] = options;
  const void* const all[] = {&enabled,
                             &run,
                             &run_id,
                             &config,
                             &run_dir,
                             &address,
                             &token,
                             &web_config,
                             &insecure,
                             &allowed_hosts,
                             &port,
                             &share_port,
                             &mode,
                             &weight_every,
                             &update_sample,
                             &groups,
                             &max_groups,
                             &group_series,
                             &max_series,
                             &ring_slots,
                             &vanishing_threshold,
                             &exploding_threshold,
                             &history_steps,
                             &step_log,
                             &step_log_max_bytes,
                             &stall_seconds,
                             &stall_pause_seconds,
                             &linger_seconds,
                             &linger_incident_seconds,
                             &expect_scraper,
                             &start_step,
                             &rank,
                             &local_rank,
                             &world_size,
                             &flops_per_token,
                             &peak_flops,
                             &sync,
                             &sync_budget,
                             &sync_budget_after,
                             &sync_threshold_us,
                             &sync_profiler,
                             &sync_library,
                             &sync_report,
                             &detect,
                             &cooldown_seconds,
                             &loss_window,
                             &loss_sigma,
                             &loss_ratio,
                             &loss_absolute,
                             &loss_in_a_row,
                             &random_guess_loss,
                             &exploding_factor,
                             &vanishing_share,
                             &drift_threshold,
                             &dead_after,
                             &overflow_streak,
                             &cost_budget,
                             &on_nonfinite,
                             &on_divergence,
                             &skip_limit,
                             &skip_norm,
                             &skip_on_device,
                             &found_inf_for_scaler,
                             &snapshot_every,
                             &snapshot_seconds,
                             &snapshot_budget,
                             &rollback_limit,
                             &rollback_window,
                             &rollback_optimizer,
                             &rollback_lr_factor,
                             &rollback_device_sync,
                             &ranks,
                             &check_before_reduction,
                             &compare_replicas_every,
                             &alertmanager_url,
                             &alertmanager_http_config,
                             &alertmanager_labels,
                             &recorder,
                             &recorder_dir,
                             &recorder_steps,
                             &recorder_memory_bytes,
                             &recorder_disk_bytes,
                             &recorder_kept,
                             &recorder_signal,
                             &trace_nonfinite,
                             &norm_exchange,
                             &handle_sigterm,
                             &log,
                             &on_incident,
                             &command_line};
  return std::size(all);
}

TEST(OptionTable, HasARowForEveryMemberOfOptions) {
  EXPECT_EQ(option_table().size() + kCodeOnly, members());
}

TEST(OptionTable, EveryKeyIsThereOnceAndIsAWordThatShellsAndYamlTake) {
  std::set<std::string_view> keys;
  for (const OptionSpec& option : option_table()) {
    EXPECT_TRUE(keys.insert(option.key).second) << option.key;
    EXPECT_TRUE(std::ranges::all_of(option.key, [](unsigned char c) {
      return std::islower(c) != 0 || c == '_';
    })) << option.key;
    EXPECT_EQ(find_option(option.key), &option);
  }
}

TEST(OptionTable, AnUnknownKeyIsNotFound) {
  for (const char* key : {"", "Run", "weight-every", "weight_every ", "command_line", "log"})
    EXPECT_EQ(find_option(key), nullptr) << key;
}

TEST(OptionTable, NamesFollowFromTheKey) {
  EXPECT_EQ(environment_name("weight_every"), "GRADVANE_WEIGHT_EVERY");
  EXPECT_EQ(environment_name("run"), "GRADVANE_RUN");
  EXPECT_EQ(environment_name("enabled"), "GRADVANE") << "the switch is the name itself";
  EXPECT_EQ(argument_name("weight_every"), "--gradvane-weight-every");
  EXPECT_EQ(argument_name("enabled"), "--gradvane-enabled");
}

TEST(OptionTable, SaysWhatIsAllowedAndWhatItMeansInWordsFitForATable) {
  for (const OptionSpec& option : option_table()) {
    EXPECT_GE(option.allowed.size(), 3U) << option.key;
    EXPECT_GE(option.help.size(), 10U) << option.key;
    EXPECT_TRUE(option.help.ends_with('.')) << option.key;
    for (const std::string_view text : {option.allowed, option.help})
      EXPECT_EQ(text.find_first_of("|\n"), std::string_view::npos) << option.key;
  }
}

TEST(OptionTable, EveryDefaultIsAllowedItself) {
  for (const OptionSpec& option : option_table()) {
    if (option.key == "config") continue;
    Options options;
    EXPECT_TRUE(option.set(options, option.get(Options{}))) << option.key;
    for (const OptionSpec& any : option_table())
      EXPECT_EQ(any.get(options), any.get(Options{})) << any.key;
  }
}

TEST(OptionTable, SettingAnOptionChangesItAndNothingElse) {
  ASSERT_EQ(option_samples().size(), option_table().size());
  for (const OptionSample& sample : option_samples()) {
    const OptionSpec* option = find_option(sample.key);
    ASSERT_NE(option, nullptr) << sample.key;
    if (sample.key == "config") continue;
    for (const std::string_view value : {sample.one, sample.other}) {
      Options options;
      ASSERT_TRUE(option->set(options, value)) << sample.key << " = " << value;
      EXPECT_EQ(option->get(options), value);
      for (const OptionSpec& any : option_table()) {
        if (&any != option) {
          EXPECT_EQ(any.get(options), any.get(Options{})) << sample.key << " moved " << any.key;
        }
      }
    }
    EXPECT_NE(sample.one, option->get(Options{})) << sample.key;
  }
}

TEST(OptionTable, ABadValueIsRefusedAndChangesNothing) {
  for (const OptionSample& sample : option_samples()) {
    const OptionSpec* option = find_option(sample.key);
    ASSERT_NE(option, nullptr) << sample.key;
    for (const std::string_view value : sample.bad) {
      Options options;
      EXPECT_FALSE(option->set(options, value)) << sample.key << " = '" << value << "'";
      EXPECT_EQ(option->get(options), option->get(Options{})) << sample.key << " = " << value;
    }
  }
}

TEST(OptionTable, ASwitchTakesTheUsualWords) {
  const OptionSpec* option = find_option("handle_sigterm");
  for (const char* on : {"on", "true", "yes", "1"}) {
    Options options;
    options.handle_sigterm = false;
    EXPECT_TRUE(option->set(options, on));
    EXPECT_TRUE(options.handle_sigterm) << on;
  }
  for (const char* off : {"off", "false", "no", "0"}) {
    Options options;
    EXPECT_TRUE(option->set(options, off));
    EXPECT_FALSE(options.handle_sigterm) << off;
  }
}

TEST(OptionTable, ThresholdsAreShownAsShortAsTheyReadBackTheSame) {
  const OptionSpec* option = find_option("vanishing_threshold");
  for (const double value : {1e-7, 0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308}) {
    Options options;
    options.vanishing_threshold = value;
    const std::string text = option->get(options);
    Options again;
    ASSERT_TRUE(option->set(again, text)) << text;
    EXPECT_EQ(again.vanishing_threshold, value) << text;
  }
}

TEST(OptionTable, AnAddressMayBeOfEitherFamilyWithAZoneOrTheLocalHost) {
  const OptionSpec* option = find_option("address");
  for (const char* address :
       {"127.0.0.1", "0.0.0.0", "::", "::1", "fe80::1%eth0", "localhost", "unix:/run/a.sock"}) {
    Options options;
    EXPECT_TRUE(option->set(options, address)) << address;
    EXPECT_EQ(options.address, address);
  }
  Options options;
  EXPECT_FALSE(option->set(options, "127.0.0.1%eth0"));
}

}  // namespace
}  // namespace gradvane::agent
