#pragma once
// A CUDA program as seen from an injected library: its host syncs, an endpoint for them, and a report.
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "collectors/sync_ledger/sync_ledger.hpp"
#include "exporters/api/endpoint.hpp"
#include "exporters/exporter_set.hpp"
#include "inject/agents_ledger.hpp"
#include "record/run/run_info.hpp"

namespace gradvane::inject {

/// What the environment says; the names are those of the agent's options.
struct Settings {
  std::string run;            ///< GRADVANE_RUN; default: the program's name
  std::string run_id;         ///< GRADVANE_RUN_ID, else the launcher's; empty: neither
  std::string address;        ///< GRADVANE_ADDRESS
  std::string token;          ///< GRADVANE_TOKEN
  std::string allowed_hosts;  ///< GRADVANE_ALLOWED_HOSTS
  int port = 9464;            ///< GRADVANE_PORT; -1: no endpoint
  std::string report;         ///< GRADVANE_SYNC_REPORT; empty: none
  std::string library;        ///< GRADVANE_SYNC_LIBRARY
  collectors::ProfilerRule profiler = collectors::ProfilerRule::yield;  ///< GRADVANE_SYNC_PROFILER
  int threshold_us = 50;  ///< GRADVANE_SYNC_THRESHOLD_US
  int rank = 0;           ///< the launcher's, as the next two
  int local_rank = 0;
  int world_size = 1;
  /// False: GRADVANE_INJECT_ENDPOINT is off, since an agent will have one; or nobody may be let in:
  /// the address is not loopback and there is neither a token nor GRADVANE_INSECURE, or the token
  /// is that of a run directory, which this run does not have.
  bool has_endpoint = true;
  bool is_off = false;       ///< GRADVANE or GRADVANE_SYNC is off
  bool is_required = false;  ///< GRADVANE_SYNC is require
};
/// A value that is not allowed counts as none: there is nobody to tell.
[[nodiscard]] Settings settings_of_environment();

enum class FirstCaller : std::uint8_t {
  driver,  ///< from cuInit
  agent,   ///< that starts before the program uses CUDA, if it ever does
};

/// Never destroyed: the program's threads outlive main().
class InjectedRun {
 public:
  InjectedRun(Settings settings, FirstCaller caller);

  /// Joins the ledger. Where the driver came first, before anybody else can find this run: to subscribe waits
  /// for the driver, which waits for this thread.
  void join() noexcept;
  /// Starts the thread. May throw.
  void start();
  /// The driver is being set up, on this thread.
  void note_driver() noexcept;
  /// The program ends: has the report written for the last time. Waits for a few seconds at most, whatever
  /// the file does.
  void finish() noexcept;
  /// In a forked child nothing of it is alive.
  void in_forked_child() noexcept;
  /// For agents in this process, which share it and report themselves.
  [[nodiscard]] collectors::SyncLedger& ledger() noexcept { return for_agents_; }

 private:
  void leave() noexcept;
  void leave_a_sign() noexcept;
  void run() noexcept;
  void watch();
  void export_now();

  Settings settings_;
  record::RunInfo run_;
  collectors::SyncLedger& ledger_;
  AgentsLedger for_agents_;
  std::shared_ptr<exporters::MetricSet> metrics_;
  std::shared_ptr<exporters::StatusBoard> board_;
  exporters::ExporterSet exporters_;
  std::atomic<exporters::Endpoint*> endpoint_{nullptr};  ///< never freed, as nothing here
  std::atomic<bool> has_driver_;
  std::atomic<bool> has_joined_{false};
  std::atomic<bool> is_child_{false};
  std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  bool has_ended_ = false;
  bool has_thread_ = false;  ///< that has not said its last word
};

}  // namespace gradvane::inject
