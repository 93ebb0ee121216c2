"""Every option, in groups: what `gradvane run --help` shows.

Made by gradvane_options_doc --python from agent/public/option_table.cpp. Do not edit: change the table there.
"""

# ruff: noqa: E501
from __future__ import annotations

GROUPS: dict[str, list[tuple[str, str, str, str]]] = {
    "The run": [
        ("enabled", "on", "on, off (also true, false, yes, no, 1, 0)", "Off leaves the program as if Gradvane were not there. GRADVANE in the environment."),
        ("run", "", "any text", "Name of the run, on every series. Default: the program's name, with the run_id if a run of that name is live on this machine."),
        ("run_id", "", "any text", "Tells apart the runs of one name. Default: what torchrun or Slurm gives, else the time of the start. docs/prometheus.md."),
        ("config", "", "path of a YAML file", "Read before the environment. Keys are those of this table."),
        ("run_dir", "", "path of a directory", "Holds endpoint files and recordings. Default: a folder under gradvane-<uid> in the temporary directory. docs/run-directory.md."),
    ],
    "The endpoint": [
        ("address", "127.0.0.1", "an IPv4 or IPv6 address, localhost, or unix:/path with a path of at most 100 bytes", "Where the endpoint listens. A unix socket is for this user alone. All but it and loopback need web_config, token or insecure."),
        ("token", "", "auto, or 16 to 128 letters, digits and - . _ ~", "What requests have to show, as `Authorization: Bearer ...`. auto: made once for each run directory, where `gradvane open` and Prometheus find it. Empty: nothing. docs/api."),
        ("web_config", "", "path of a YAML file", "TLS, users and a rate limit, as for Prometheus. docs/tls.md."),
        ("insecure", "off", "on, off (also true, false, yes, no, 1, 0)", "Lets the endpoint listen on a network with neither, for all to read."),
        ("allowed_hosts", "", "host names with commas, without ports; *.name, or *", "More names by which requests may call the endpoint. It answers to IP addresses, localhost and, if not on loopback, this machine's names; there /metrics answers to every name. *.name: all below it. *: any, so web pages can read what a browser there can."),
        ("port", "9464", "-1 to 65535", "Port of the endpoint. Taken by another run: the next free one. 0: any. -1: no endpoint."),
        ("share_port", "on", "on, off (also true, false, yes, no, 1, 0)", "The ranks of one machine have one port for all: one of them serves it, and another takes over if that one dies. Off: each has its own, port + LOCAL_RANK. docs/prometheus.md."),
    ],
    "What is measured": [
        ("mode", "lagged", "lagged, immediate", "Lagged waits for no device; immediate waits once per device and step, and step() returns the step's result. on_nonfinite waits in either mode."),
        ("weight_every", "50", "0 or more", "Weights are read at step 1, at multiples of this, and when a non-finite incident opens. 0: never."),
        ("update_sample", "4096", "0 or more", "Elements per parameter kept for the update ratio, at most 65,536 in all. 0: no update ratio."),
        ("groups", "auto", "auto, depth:N with N >= 1, or name=regex;name=regex", "Which parameters share a series. auto: one group per layer, or finer, up to 50 groups."),
        ("max_groups", "150", "1 to 1000", "auto joins neighbouring layers if there are more. Any other rule puts the rest into the group \"other\"."),
        ("group_series", "auto", "auto, all, local0, rank0", "Ranks that publish the gauges of groups in /metrics: all, one per node, or one. auto: all, unless that would make more than 50,000 series together; then rank 0. One is enough for replicas (DDP). The page, the API and counters have the groups of every rank."),
        ("max_series", "2000", "100 or more", "Most series of this process; what is beyond is counted and not exported."),
        ("vanishing_threshold", "1e-07", "a finite number of at least 0", "A parameter's gradient norm below it counts as vanishing."),
        ("exploding_threshold", "10", "a finite number of at least 0", "A parameter's gradient norm above it counts as exploding, and so does a gradient that is not finite."),
        ("ring_slots", "0", "0 to 65536", "Reads the worker may lag behind before the oldest is dropped. 0: as many as fit in 1 MiB, from 64 to 1,024. Never more than fit in 64 MiB."),
        ("history_steps", "4096", "1 to 10000000", "Steps kept for /api/v1/steps, about 1.5 kB each."),
    ],
    "The step log": [
        ("step_log", "", "path of a file", "One JSON object a line for every optimizer step; .rank<R> is put before the suffix when the world is larger than one. Empty: none."),
        ("step_log_max_bytes", "268435456", "4096 or more", "The step log is rotated at this size."),
    ],
    "Start, stalls and end": [
        ("stall_seconds", "300", "a finite number of at least 0", "No step for this long, and for 20 median steps: the run counts as stalled. 0: never."),
        ("stall_pause_seconds", "3600", "a finite number of at least 0", "An evaluation or a checkpoint is no stall: it stops that clock, for at most this long. 0: it does not."),
        ("linger_seconds", "5", "a finite number of at least 0", "At the end of the process, wait this long for one more scrape, if there ever was one. Ctrl-C ends the wait."),
        ("linger_incident_seconds", "15", "a finite number of at least 0", "The same where an incident is open, or opened since the last scrape, or the run failed."),
        ("expect_scraper", "off", "on, off (also true, false, yes, no, 1, 0)", "Wait for a scrape at the end even where there never was one: for runs that may die before the first."),
        ("start_step", "0", "0 or more", "Steps done before this process. 0: taken from the optimizer's state, where it has one."),
    ],
    "Ranks": [
        ("rank", "-1", "-1 or more", "-1: the launcher's, else 0."),
        ("local_rank", "-1", "-1 or more", "-1: the launcher's, else 0."),
        ("world_size", "-1", "-1 or more", "-1: the launcher's, else 1."),
        ("flops_per_token", "0", "a finite number of at least 0", "FLOP that the model needs for a token, forward and backward: about 6 times its parameters. With peak_flops and counted tokens it gives gradvane_model_flops_utilization_ratio. 0: not known."),
        ("peak_flops", "0", "a finite number of at least 0", "FLOP/s that the devices of this process can do at most, in the type that it computes with: 989e12 for the dense BF16 of one H100 SXM. 0: not known."),
    ],
    "Host syncs": [
        ("sync", "auto", "off, auto, require", "Whether calls that make the CPU wait for the GPU are counted, through CUPTI. auto: where they can be, from when the process uses CUDA; gradvane_sync_source_info says why not. require: the agent does not start without."),
        ("sync_budget", "-1", "-1 or more", "Most host syncs that the training may make per step. More is an incident, with the places. -1: any number."),
        ("sync_budget_after", "10", "0 or more", "Steps of this process to which the budget does not apply: they load code and fill caches."),
        ("sync_threshold_us", "50", "1 to 1000000", "A call that only may wait (cudaMalloc, cudaFree, an asynchronous copy of pageable memory) counts as a host sync if it took this many microseconds or more."),
        ("sync_profiler", "auto", "auto, gate, yield, share", "PyTorch's profiler needs CUPTI, which has one subscriber. yield: the profiler gets it while it runs, and may keep it. gate: the profiler runs without, because KINETO_USE_DAEMON=1 was set before the program started; programs that use the profiler, and children that import torch, then end ten seconds later. share: CUPTI's own sharing, from 13.3 on, if every tool in the process supports it. auto: yield from Python; from C++, which does not see the profiler start, the subscription is kept."),
        ("sync_library", "", "path of a libcupti", "Default: the one that the process has, else the one that the loader finds."),
        ("sync_report", "", "path of a file or a directory", "What /api/v1/syncs says is written there every second and at the end; .rank<R> is put before the suffix when the world is larger than one. In a directory (one that exists, or a path that ends with /) each process writes syncs.<pid>.json. Empty: none."),
    ],
    "Detectors": [
        ("detect", "default", "classes of incidents, default, panic_v1, all, none, each with a - in front to leave it out", "What is judged, as a list with commas. default: all classes but grad_health. panic_v1: nonfinite_loss, random_guess, loss_divergence and rollback."),
        ("cooldown_seconds", "60", "a finite number of at least 0", "An incident that recurs within this time after it cleared is reopened, not new. Not for non-finite values, host syncs and stalls."),
        ("loss_window", "20", "10 to 10000", "Losses that a loss is compared with."),
        ("loss_sigma", "6", "a finite number of at least 0", "A loss is an outlier if it is this many standard deviations above the mean of those before, and also beyond loss_ratio and loss_absolute."),
        ("loss_ratio", "3", "a finite number of at least 0", "A loss is an outlier only above this multiple of that mean."),
        ("loss_absolute", "0", "a finite number of at least 0", "A loss is an outlier only above this. 0: no such test."),
        ("loss_in_a_row", "3", "1 to 1000", "This many outliers in a row are a divergence; fewer are a spike."),
        ("random_guess_loss", "0", "a finite number of at least 0", "The loss of a random guess: ln of the number of classes, or of the vocabulary. A run that has learned and comes back to it is an incident. 0: not known."),
        ("exploding_factor", "10", "a finite number of at least 0", "Gradients explode if their norm is this many times the median of those before."),
        ("vanishing_share", "0.5", "a finite number of at least 0", "Gradients vanish if the gradients of this share of the parameters are below vanishing_threshold."),
        ("drift_threshold", "2", "a finite number of at least 0", "The gradient norm drifts if it differs from its running mean by this many times that mean for 50 steps in a row. From 1 on only a rise counts."),
        ("dead_after", "50", "1 or more", "A group is dead if all its gradients are zero in this many steps in a row."),
        ("overflow_streak", "8", "1 to 1000", "If a gradient scaler skips this many steps in a row, that is an incident."),
        ("cost_budget", "0.05", "a finite number of at least 0", "Share of the steps' time that Gradvane's own hooks may take."),
    ],
    "The governor": [
        ("on_nonfinite", "watch", "watch, skip, stop, rollback", "What is done with a step whose loss or gradients are not finite. watch: nothing. skip: the optimizer does not take it. stop: the same, and the run stops. rollback: the model goes back to the last good snapshot. On a GPU: one host sync per step. docs/governor.md."),
        ("on_divergence", "watch", "watch, stop, rollback", "What is done when the training diverges: at the step after an incident loss_divergence, random_guess or grad_exploding opened."),
        ("skip_limit", "5", "1 or more", "This many steps skipped in a row lead to the next policy: a rollback where there are snapshots, else a stop."),
        ("skip_norm", "0", "a finite number of at least 0", "Under `on_nonfinite: skip`, a step whose gradient norm is above this is skipped too. 0: any finite norm is taken."),
        ("snapshot_every", "0", "0 or more", "Steps between two snapshots of the training's state. 0: every 100 if a policy is rollback and snapshot_seconds is 0, else none."),
        ("snapshot_seconds", "0", "a finite number of at least 0", "Seconds between two snapshots, in addition to snapshot_every. 0: by steps only."),
        ("snapshot_budget", "0", "a finite number of at least 0", "Share of the training's time that snapshots may take: one that would exceed it comes later. 0: any."),
        ("rollback_limit", "3", "1 or more", "A rollback that would be one more than this within rollback_window stops the run instead."),
        ("rollback_window", "1000", "1 or more", "Steps within which rollbacks are counted."),
        ("rollback_optimizer", "restore", "restore, reset, keep", "What a policy's rollback does with the optimizers. restore: their state as it was. reset: they begin without state. keep: they stay as they are."),
        ("rollback_lr_factor", "1", "a finite number above 0", "A policy's rollback multiplies the learning rates of the snapshot by this, once more at each return to the same snapshot. Without effect if rollback_optimizer is keep."),
        ("ranks", "off", "off, agree", "agree: all ranks of a run tell each other of each step before the update, and policies act on all of them or on none. It costs one small exchange per step. Snapshots must come by steps. A C++ program calls Agent::agree_over()."),
        ("check_before_reduction", "off", "on, off (also true, false, yes, no, 1, 0)", "Each rank looks at its gradients before ranks average them, so that the rank that a NaN comes from is known. One more read of them. With ranks: agree. In Python under DistributedDataParallel; a C++ program calls Agent::before_reduction()."),
        ("compare_replicas_every", "0", "0 or more", "Steps between two comparisons of the weights of ranks that began with the same ones. They compare checksums; each comparison reads all weights once. 0: none. With ranks: agree."),
    ],
    "Alertmanager": [
        ("alertmanager_url", "", "http://host:port or https://host:port, with a path prefix if there is one", "Incidents that have an alert are sent to this Alertmanager at once, in addition to what Prometheus sends. Empty: none."),
        ("alertmanager_http_config", "", "path of a YAML file", "TLS, a password or a token for it, as Prometheus and amtool have them. docs/alert-push.md."),
        ("alertmanager_labels", "", "name=value,name=value", "Labels that Prometheus' alerts have besides, above all job, so that Alertmanager sees both reports as one alert."),
    ],
    "The flight recorder": [
        ("recorder", "on", "on, off (also true, false, yes, no, 1, 0)", "Keep the last steps, all parameters, in memory, and write them to a file when something goes wrong. `gradvane replay` shows what such a file holds."),
        ("recorder_dir", "", "path of a directory", "Where recordings are written. Default: the run directory."),
        ("recorder_steps", "1000", "1 to 1000000", "Most steps that are kept in memory."),
        ("recorder_memory_bytes", "67108864", "65536 to 1099511627776", "Most memory that they take."),
        ("recorder_disk_bytes", "-1", "-1 to 1099511627776", "Size of a ring on disk that outlives a process which is killed; a run that finishes removes it. -1: 33554432, or 8388608 where the disk is memory (tmpfs). 0: none."),
        ("recorder_kept", "8", "1 to 10000", "Most files of this run and rank; the oldest go."),
        ("recorder_signal", "none", "none, usr1, usr2", "Signal that asks for a recording, if the program does not handle it."),
    ],
    "Traces, sharded models, signals": [
        ("trace_nonfinite", "off", "off, next_step, always", "Which steps are traced, from Python, for the first module whose output or gradient is not finite. next_step: the step after a non-finite incident opened, once per incident. always: every step, at the cost that docs/trace-nonfinite.md measures."),
        ("norm_exchange", "auto", "auto, off", "Whether ranks that hold parts of the same parameters (FSDP2, DTensor) exchange the norms of their parts over the store of the process group. off: grad_norm is absent on such ranks, shard_grad_norm is not."),
        ("handle_sigterm", "on", "on, off (also true, false, yes, no, 1, 0)", "At SIGTERM: export the last steps, wait for one more scrape as at any end (linger_seconds) while steps are still recorded, then die by it; a second one kills at once. At SIGINT the same without the wait. Only if the program does not handle the signal: Python handles SIGINT itself."),
    ],
}
"""title -> (key, default, allowed, meaning)"""
