#pragma once
// For every option two values that are allowed, neither the default unless it is a switch, and some
// that are not.
#include <string>
#include <string_view>
#include <vector>

namespace gradvane::agent::test {

struct OptionSample {
  std::string_view key;
  std::string_view one;
  std::string_view other;
  std::vector<std::string_view> bad;
};

inline const std::vector<OptionSample>& option_samples() {
  static const std::vector<OptionSample> kSamples = {
      {"enabled", "off", "on", {"", "ON", "maybe", "2", "on "}},
      {"run", "gpt", "a run, with: odd = characters", {}},
      {"run_id", "1234.0", "an id, with: odd = characters", {}},
      {"config", "", "", {}},  // the tests make their own files
      {"run_dir", "runs", "elsewhere/runs", {}},
      {"token", "auto", "0123456789abcdef", {"short", "0123456789abcde", "01234567 89abcdef"}},
      {"web_config", "web.yml", "elsewhere/web.yml", {}},
      {"insecure", "on", "off", {"", "maybe", "2"}},
      {"address",
       "0.0.0.0",
       "::1",
       {"", "here", "127.0.0", "127.0.0.1:80", "[::1]", "1.2.3.4.5", "unix:run.sock", "unix:/a:b"}},
      {"allowed_hosts",
       "node7.example",
       "*.svc.cluster.local,gpu_box",
       {"a:80", "http://a", "*a", "a.*"}},
      {"port", "-1", "65535", {"", "-2", "65536", "http", "9464 ", " 1", "0x10", "1.0", "1e3"}},
      {"share_port", "off", "on", {"", "one", "2"}},
      {"mode", "immediate", "immediate", {"", "Lagged", "eager", "immediate,lagged"}},
      {"weight_every", "0", "2147483647", {"", "-1", "2147483648", "often", "1.5"}},
      {"update_sample", "0", "7", {"", "-1", "99999999999", "all"}},
      {"groups", "depth:3", "a=^x;b=y", {"", "depth:0", "depths", "a=(", "=x"}},
      {"max_groups", "1", "1000", {"", "0", "1001", "-5", "many"}},
      {"group_series", "local0", "rank0", {"", "Auto", "All", "none"}},
      {"max_series", "100", "2147483647", {"", "99", "-1", "2147483648"}},
      {"vanishing_threshold",
       "0",
       "2.5e-09",
       {"", "-1e-9", "nan", "inf", "-inf", "1e999", "small"}},
      {"exploding_threshold", "0.125", "1e+300", {"", "-0.1", "nan", "inf", "10x", "1,5"}},
      {"ring_slots", "2", "65536", {"", "-1", "65537", "-64"}},
      {"history_steps", "1", "10000000", {"", "0", "10000001"}},
      {"step_log", "steps.jsonl", "logs/steps.jsonl", {}},
      {"step_log_max_bytes", "4096", "9223372036854775807", {"", "4095", "9223372036854775808"}},
      {"stall_seconds", "0", "0.5", {"", "-1", "nan", "5s"}},
      {"stall_pause_seconds", "0", "0.5", {"", "-1", "nan", "1h"}},
      {"linger_seconds", "0", "1.5", {"", "-1", "inf", "never"}},
      {"linger_incident_seconds", "0", "1.5", {"", "-1", "inf", "never"}},
      {"expect_scraper", "on", "off", {"", "On", "maybe"}},
      {"start_step", "1", "9223372036854775807", {"", "-1", "9223372036854775808", "1e6"}},
      {"rank", "1", "2147483647", {"", "-2", "2147483648", "first"}},
      {"local_rank", "3", "7", {"", "-2", "first"}},
      {"world_size", "8", "16", {"", "-2", "all"}},
      {"flops_per_token", "6000", "4.2e+10", {"", "-1", "nan", "inf", "6N"}},
      {"peak_flops", "0.5", "9.89e+14", {"", "-1", "nan", "inf", "989T"}},
      {"sync", "off", "require", {"", "on", "Auto", "required"}},
      {"sync_budget", "0", "2147483647", {"", "-2", "2147483648", "none"}},
      {"sync_budget_after", "0", "500", {"", "-1", "2147483648"}},
      {"sync_threshold_us", "1", "1000000", {"", "0", "1000001", "50us"}},
      {"sync_profiler", "yield", "share", {"", "Gate", "off"}},
      {"sync_library", "libcupti.so.13", "/opt/cupti/libcupti.so", {}},
      {"sync_report", "syncs.json", "reports/syncs.json", {}},
      {"detect", "none", "all,-loss_spike", {"", "some", "default,", "-", "--all", "loss"}},
      {"cooldown_seconds", "0", "3600", {"", "-1", "nan", "5s"}},
      {"loss_window", "10", "10000", {"", "9", "10001", "all"}},
      {"loss_sigma", "0", "2.5", {"", "-1", "inf"}},
      {"loss_ratio", "0", "1.5", {"", "-1", "nan"}},
      {"loss_absolute", "12", "0.25", {"", "-1", "none"}},
      {"loss_in_a_row", "1", "1000", {"", "0", "1001"}},
      {"random_guess_loss", "2.5", "10.75", {"", "-1", "ln(10)"}},
      {"exploding_factor", "2", "1000", {"", "-1", "10x"}},
      {"vanishing_share", "0.25", "1", {"", "-0.5", "50%"}},
      {"drift_threshold", "0.5", "9", {"", "-1", "nan"}},
      {"dead_after", "1", "2147483647", {"", "0", "-1"}},
      {"overflow_streak", "1", "1000", {"", "0", "1001"}},
      {"cost_budget", "0.01", "1", {"", "-0.01", "5%"}},
      {"on_nonfinite", "skip", "stop", {"", "Skip", "off", "skip,stop"}},
      {"on_divergence", "stop", "rollback", {"", "skip", "Stop"}},
      {"skip_limit", "1", "2147483647", {"", "0", "-1", "5.5"}},
      {"skip_norm", "1", "2.5", {"", "-1", "nan", "inf"}},
      {"skip_on_device", "on", "off", {"", "maybe", "2"}},
      {"snapshot_every", "1", "2147483647", {"", "-1", "often"}},
      {"snapshot_seconds", "1", "2.5", {"", "-1", "nan", "1m"}},
      {"snapshot_budget", "0.01", "0.05", {"", "-1", "inf", "5%"}},
      {"rollback_limit", "1", "9", {"", "0", "-1"}},
      {"rollback_window", "1", "9", {"", "0", "-1"}},
      {"rollback_optimizer", "reset", "keep", {"", "Reset", "restored"}},
      {"rollback_lr_factor", "0.5", "2", {"", "0", "-1", "nan", "inf"}},
      {"rollback_device_sync", "on", "off", {"", "maybe", "2"}},
      {"ranks", "agree", "off", {"", "on", "Agree", "none"}},
      {"check_before_reduction", "on", "off", {"", "maybe", "2"}},
      {"compare_replicas_every", "50", "0", {"", "-1", "often"}},
      {"alertmanager_url",
       "http://localhost:9093",
       "http://[::1]:9093/alertmanager",
       {"localhost:9093", "https://me:secret@localhost:9093", "http://", "ftp://localhost"}},
      {"alertmanager_http_config", "am.yml", "elsewhere/am.yml", {}},
      {"alertmanager_labels",
       "job=training",
       "job=a,instance=b:1",
       {"job", "job=", "run=gpt", ","}},
      {"recorder", "off", "on", {"", "On", "disk"}},
      {"recorder_dir", "recordings", "elsewhere/recordings", {}},
      {"recorder_steps", "1", "1000000", {"", "0", "1000001"}},
      {"recorder_memory_bytes", "65536", "1099511627776", {"", "65535", "64MiB"}},
      {"recorder_disk_bytes", "0", "1048576", {"", "-2", "32MiB"}},
      {"recorder_kept", "1", "10000", {"", "0", "10001"}},
      {"recorder_signal", "usr1", "usr2", {"", "USR1", "10", "term"}},
      {"trace_nonfinite", "next_step", "always", {"", "on", "Always", "next"}},
      {"norm_exchange", "off", "auto", {"", "on", "Auto", "none"}},
      {"handle_sigterm", "off", "on", {"", "Off", "never", "-1"}},
  };
  return kSamples;
}

}  // namespace gradvane::agent::test
