#include "inject/injected_run.hpp"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>

#include "collectors/sync_ledger/cupti/cupti_library.hpp"
#include "exporters/board/status_board.hpp"
#include "exporters/files/run_token.hpp"
#include "exporters/http/access/host_rule.hpp"
#include "exporters/metric_set.hpp"
#include "exporters/prometheus/prometheus_exporter.hpp"
#include "exporters/signals_blocked.hpp"
#include "exporters/step_log/sync_report.hpp"
#include "record/clocks.hpp"
#include "record/run/launchers.hpp"

namespace gradvane::inject {
namespace {

using namespace std::chrono_literals;

constexpr auto kEndBudget = 3s;

std::string text_of(const char* name, std::string otherwise = {}) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::move(otherwise) : std::string(value);
}

int number_in(const std::string& text, int otherwise, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_good =
      error == std::errc{} && end == text.data() + text.size() && value >= low && value <= high;
  return is_good ? value : otherwise;
}

int number_of(const char* name, int otherwise, int low, int high) {
  return number_in(text_of(name), otherwise, low, high);
}

int launcher_number(record::RankNumber number, int least) {
  constexpr int kMost = 1 << 20;
  const auto found = record::launcher_number(number, record::process_environment());
  return found ? number_in(found->text, least, least, kMost) : least;
}

std::string word_of(const char* name) {
  std::string value = text_of(name);
  std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::tolower(c); });
  return value;
}

bool is_off(const char* name) {
  const std::string word = word_of(name);
  return word == "off" || word == "false" || word == "no" || word == "0";
}

bool is_on(const char* name) {
  const std::string word = word_of(name);
  return word == "on" || word == "true" || word == "yes" || word == "1";
}

collectors::ProfilerRule profiler_rule() {
  const std::string text = text_of("GRADVANE_SYNC_PROFILER");
  if (text == "gate") return collectors::ProfilerRule::keep;
  return text == "share" ? collectors::ProfilerRule::share : collectors::ProfilerRule::yield;
}

/// The package that libtorch lies in, wherever it was built; empty while it is not there.
std::string torch_directory() {
  if (!collectors::cupti::is_in_process("libtorch_cpu.so")) return {};
  void* library = ::dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return {};
  const link_map* map = nullptr;
  std::string path;
  if (::dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0) path = map->l_name;
  (void)::dlclose(library);
  return std::filesystem::path(path).parent_path().parent_path().string();
}

record::RunInfo describe(const Settings& settings) {
  record::RunInfo run;
  run.run = settings.run;
  run.rank = settings.rank;
  run.local_rank = settings.local_rank;
  run.world_size = settings.world_size;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) run.host = host.data();
  run.pid = ::getpid();
  run.version = GRADVANE_VERSION;
  run.start_time = record::unix_time();
  run.run_id = settings.run_id;
  if (run.run_id.empty())
    run.run_id = record::unnamed_run_id(run.start_time, record::process_environment());
  return run;
}

bool may_be_read(const Settings& settings) {
  if (!settings.token.empty()) return exporters::is_access_token(settings.token);
  return exporters::is_loopback(settings.address) || is_on("GRADVANE_INSECURE");
}

}  // namespace

Settings settings_of_environment() {
  Settings settings;
  settings.run = text_of("GRADVANE_RUN", program_invocation_short_name);
  settings.run_id =
      text_of("GRADVANE_RUN_ID", record::launcher_run_id(record::process_environment()));
  settings.address = text_of("GRADVANE_ADDRESS", "127.0.0.1");
  settings.token = text_of("GRADVANE_TOKEN");
  settings.allowed_hosts = text_of("GRADVANE_ALLOWED_HOSTS");
  settings.port = number_of("GRADVANE_PORT", 9464, -1, 65535);
  settings.report = text_of("GRADVANE_SYNC_REPORT");
  settings.library = text_of("GRADVANE_SYNC_LIBRARY");
  settings.profiler = profiler_rule();
  settings.threshold_us = number_of("GRADVANE_SYNC_THRESHOLD_US", 50, 1, 1'000'000);
  settings.rank = launcher_number(record::RankNumber::rank, 0);
  settings.local_rank = launcher_number(record::RankNumber::local_rank, 0);
  settings.world_size = launcher_number(record::RankNumber::world_size, 1);
  settings.has_endpoint = !is_off("GRADVANE_INJECT_ENDPOINT") && may_be_read(settings);
  settings.is_off = is_off("GRADVANE") || is_off("GRADVANE_SYNC");
  settings.is_required = word_of("GRADVANE_SYNC") == "require";
  return settings;
}

InjectedRun::InjectedRun(Settings settings, FirstCaller caller)
    : settings_(std::move(settings)),
      run_(describe(settings_)),
      ledger_(collectors::process_ledger()),
      for_agents_(ledger_, [this] { leave(); }),
      metrics_(std::make_shared<exporters::MetricSet>(run_)),
      board_(std::make_shared<exporters::StatusBoard>(1)),
      exporters_(metrics_),
      has_driver_(caller == FirstCaller::driver) {
  if (caller == FirstCaller::agent) settings_.has_endpoint = false;  // the agent's will do
  if (caller == FirstCaller::driver) for_agents_.note_driver();
  exporters_.add(std::make_shared<exporters::PrometheusExporter>(metrics_));
  exporters_.add(board_);
}

void InjectedRun::join() noexcept try {
  if (has_driver_.load()) leave_a_sign();
  collectors::LedgerWish wish;
  // While the driver is set up, there is no better moment, and it is not yet seen as loaded.
  wish.is_default = true;
  wish.at_once = has_driver_.load();
  wish.is_required = settings_.is_required;
  wish.profiler = settings_.profiler;
  wish.library = settings_.library;
  wish.threshold = std::int64_t{1000} * settings_.threshold_us;
  ledger_.join(wish);
  has_joined_.store(true);
} catch (...) {  // no memory: nothing is counted
}

/// The agents have gone, and with them who saw a profiler begin: the subscription is free for it.
void InjectedRun::leave() noexcept {
  if (has_joined_.exchange(false)) ledger_.leave();
}

/// For whoever started the program: the driver has loaded this library here, report or not.
void InjectedRun::leave_a_sign() noexcept try {
  if (!settings_.report.ends_with('/')) return;
  const std::string path = settings_.report + "injected." + std::to_string(::getpid());
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0) (void)::close(file);
} catch (...) {  // no memory: there is no sign
}

void InjectedRun::start() {
  const exporters::SignalsBlocked for_the_thread_to_inherit;
  const std::lock_guard lock(mutex_);
  std::thread thread([this] { run(); });
  has_thread_ = true;
  ::pthread_setname_np(thread.native_handle(), "gradvane");
  thread.detach();  // it ends with the process
}

void InjectedRun::run() noexcept {
  try {
    watch();
    export_now();
  } catch (...) {  // no memory: the ledger counts on
  }
  const std::lock_guard lock(mutex_);
  has_thread_ = false;
  changed_.notify_all();
}

void InjectedRun::watch() {
  (void)exporters_.start(run_, std::make_shared<record::ModelInfo>());
  if (settings_.port >= 0 && settings_.has_endpoint) {
    auto endpoint = std::make_unique<exporters::Endpoint>(metrics_, board_);
    exporters::EndpointOptions options;
    options.address = settings_.address;
    options.http.token = settings_.token;
    options.allowed_hosts = settings_.allowed_hosts;
    options.port = static_cast<std::uint16_t>(
        settings_.port == 0 ? 0 : std::min(settings_.port + settings_.local_rank, 65535));
    options.host = run_.host;
    (void)endpoint->start(options);
    endpoint_.store(endpoint.release());
  }
  bool knows_torch = false;
  std::unique_lock lock(mutex_);
  while (!has_ended_) {
    lock.unlock();  // a file may hang, and who ends the program must not
    // Who is setting the driver up comes to us, and must not meet us waiting for the driver.
    // An agent's training thread asks for itself.
    ledger_.look(/*may_subscribe=*/has_driver_.load() && for_agents_.agents() == 0);
    if (!knows_torch)
      if (const std::string torch = torch_directory(); !torch.empty())
        ledger_.pass_over(torch), knows_torch = true;
    export_now();
    lock.lock();
    changed_.wait_for(lock, 1s, [this] { return has_ended_; });
  }
}

void InjectedRun::note_driver() noexcept {
  if (has_driver_.load()) return;
  leave_a_sign();
  ledger_.driver_comes();
  for_agents_.note_driver();
  has_driver_.store(true);
}

void InjectedRun::export_now() {
  // An agent that is gone has left a report, which knows more of its steps than ours would.
  if (for_agents_.agents() > 0 || for_agents_.has_stepped()) return;
  const auto summary = std::make_shared<record::SyncSummary>(ledger_.summary());
  (void)exporters_.export_syncs(summary);
  if (!settings_.report.empty())
    (void)exporters::write_sync_report(settings_.report, *summary, run_);
}

void InjectedRun::finish() noexcept try {
  if (is_child_.load()) return;
  ledger_.end();
  std::unique_lock lock(mutex_);
  if (has_ended_) return;
  has_ended_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kEndBudget, [this] { return !has_thread_; });
} catch (...) {  // what was written last stays
}

void InjectedRun::in_forked_child() noexcept {
  is_child_.store(true);
  if (auto* endpoint = endpoint_.load()) endpoint->close_in_child();
}

}  // namespace gradvane::inject
