"""Runs every benchmark, keeps the raw numbers, prints one table.

Arms of one comparison run in the same session and take turns, so that a slow minute of the machine
hits them alike; ratios are of medians.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "release" / "bin"
ROUNDS = int(os.environ.get("GRADVANE_BENCH_ROUNDS", "9"))
WARM_UP_STEPS = 10


def read(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def host():
    model = re.search(r"model name\s*:\s*(.*)", read("/proc/cpuinfo"))
    name = model.group(1).strip() if model else "unknown CPU"
    cores = len(os.sched_getaffinity(0))
    kind = re.sub(r"[^a-z0-9]+", "-", f"{name} {cores} cores".lower()).strip("-")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.strip()
    return {
        "kind": kind, "cpu": name, "cores": cores, "commit": commit,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "load_before": os.getloadavg()[0],
    }


def save(about, name, rows):
    folder = ROOT / "bench" / "results" / about["kind"]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"host": about, "rows": rows}, indent=1) + "\n")
    return path


def lines_of(*command):
    """The JSON objects that a benchmark prints, one a line."""
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def train(size, steps, agent, threads, folder):
    """One run of char_gpt: its step times, and what the agent says it cost."""
    times = folder / "times"
    summary = folder / "summary.json"
    log = folder / "steps.jsonl"
    command = [
        BIN / "char_gpt", "--size", size, "--steps", str(steps), "--threads", str(threads),
        "--clip-with", "torch",
        "--no-eval", "--sample", "0", "--step-times", times, "--json", summary, "--seed", "1",
    ]
    environment = {**os.environ, "GRADVANE_RUN_DIR": str(folder), "GRADVANE_PORT": "0"}
    if agent:
        environment["GRADVANE_STEP_LOG"] = str(log)
    else:
        command.append("--no-agent")
    subprocess.run(command, env=environment, check=True, capture_output=True)
    seconds = [float(line.split()[-1]) for line in times.read_text().splitlines()]
    result = {
        "seconds": seconds[WARM_UP_STEPS:],
        "checksum": json.loads(summary.read_text())["weights_checksum"],
        "hooks": [],
    }
    if agent:
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        result["hooks"] = [row["agent_seconds"] for row in rows[WARM_UP_STEPS:]]
    return result


def in_turns(run):
    """run(watched, folder) with and without the agent: {"seconds", "checksum", "hooks"} of each."""
    arms = {True: [], False: []}
    hooks = []
    checksums = set()
    ratios = []
    for round_number in range(ROUNDS):
        medians = {}
        # Which arm goes first changes, so that neither always inherits a warm cache.
        for watched in (True, False) if round_number % 2 else (False, True):
            with tempfile.TemporaryDirectory() as folder:
                result = run(watched, Path(folder))
            arms[watched].extend(result["seconds"])
            hooks.extend(result["hooks"])
            checksums.add(result["checksum"])
            medians[watched] = statistics.median(result["seconds"])
        ratios.append(medians[True] / medians[False])
    on, off = statistics.median(arms[True]), statistics.median(arms[False])
    return {
        "rounds": ROUNDS, "seconds_on": on, "seconds_off": off, "on_over_off": on / off,
        "ratio_of_each_round": ratios, "median_ratio": statistics.median(ratios),
        "weights_identical": len(checksums) == 1,
        **({"hook_seconds_per_step": statistics.fmean(hooks)} if hooks else {}),
        "raw_on": arms[True], "raw_off": arms[False],
    }


def step_time(size, steps, threads):
    """The same training with and without the agent, in turns."""
    compared = in_turns(lambda agent, folder: train(size, steps, agent, threads, folder))
    return {"size": size, "threads": threads, "steps_per_run": steps, **compared}


def python_environment(folder):
    return {**os.environ, "PYTHONPATH": str(BIN.parent / "python"), "GRADVANE_RUN_DIR": str(folder),
            "GRADVANE_PORT": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def python_lines(script, *arguments):
    """The JSON objects of a script in bench/python."""
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([sys.executable, ROOT / "bench/python" / script, *arguments, "--rounds", str(ROUNDS)],
                             env={**python_environment(folder), "OMP_NUM_THREADS": "1"},
                             capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def print_sync_table(rows):
    print("\nsync ledger, begin and end of one call, ns")
    for row in rows:
        numbers = ", ".join(f"{key.removesuffix('_ns')} {value}" for key, value in row.items() if key.endswith("_ns"))
        print(f"  {row.get('case') or 'Python line, {} frames'.format(row['frames'])}: {numbers}")


def train_in_python(steps, watched, threads, folder):
    """One run of bench/python/small_training.py, plainly or under `gradvane run`."""
    times = folder / "times"
    way = ["-m", "gradvane", "run", "--quiet"] if watched else []
    subprocess.run([sys.executable, *way, ROOT / "bench/python/small_training.py", times, str(steps)],
                   env={**python_environment(folder), "OMP_NUM_THREADS": str(threads)},
                   check=True, capture_output=True)
    *seconds, checksum = [float(line) for line in times.read_text().splitlines()]
    return {"seconds": seconds[WARM_UP_STEPS:], "checksum": checksum, "hooks": []}


def python_step_time(steps, threads):
    """The same training plainly and under `gradvane run`, in turns."""
    compared = in_turns(lambda watched, folder: train_in_python(steps, watched, threads, folder))
    return {"threads": threads, "steps_per_run": steps, **compared}


def print_python_tables(hooks, steps):
    print(f"\n{'parameters':>10} {'clips':>6} {'added, us':>10}  hooks over rivals")
    for row in hooks:
        over = ", ".join(f"{name} {ratio:.3f}" for name, ratio in row["gradvane_over_rival"].items())
        print(f"{row['parameters']:10} {row['clips']!s:>6} {1e6 * row['added_seconds']:10.1f}  {over}")
    for row in steps:
        print(f"Python, {row['threads']} threads: {1e3 * row['seconds_off']:.3f} ms a step without, "
              f"{1e3 * row['seconds_on']:.3f} with, median ratio {row['median_ratio']:.4f}, same weights: "
              f"{row['weights_identical']}")


def print_governor_table(rows):
    for row in rows:
        over = ", ".join(f"{ratio:.3f} of {rival}" for rival, ratio in row["extra_over_rival"].items())
        print(f"{row['case']:28} {row['arm']:24} {1e6 * row['extra_seconds']:9.1f} us a step more  {over}")


def print_pass_table(rows):
    print(f"{'shapes':12} {'threads':>7} {'contender':14} {'ms':>10} {'GB/s':>8} {'ours / it':>10} "
          f"{'bytes allocated':>16}")
    for row in rows:
        print(f"{row['shapes']:12} {row['threads']:7} {row['contender']:14} {1e3 * row['seconds']:10.3f} "
              f"{row['gigabytes_per_second']:8.2f} {row['gradvane_over_this']:10.3f} "
              f"{row['bytes_allocated']:16}")


def main():
    about = host()
    cores = about["cores"]
    print(f"{about['cpu']}, {cores} cores, {about['commit']}, {ROUNDS} rounds", flush=True)

    rows = lines_of(BIN / "pass_against_torch", str(ROUNDS))
    print_pass_table(rows)
    paths = [save(about, "pass_against_torch", rows)]

    steps = [step_time("tiny", 200, 1), step_time("small", 40, cores)]
    print(f"\n{'char_gpt':10} {'off, ms':>10} {'on, ms':>10} {'on / off':>9} {'hooks, us':>10}  same weights")
    for row in steps:
        print(f"{row['size']:10} {1e3 * row['seconds_off']:10.3f} {1e3 * row['seconds_on']:10.3f} "
              f"{row['median_ratio']:9.4f} {1e6 * row['hook_seconds_per_step']:10.0f}  "
              f"{row['weights_identical']}", flush=True)
    paths.append(save(about, "step_time", steps))

    hooks = lines_of(BIN / "hook_overhead")
    print(f"\n{'parameters':>10} {'weights every':>13} {'hooks, us':>10} {'p99, us':>9} "
          f"{'bytes / step':>12}")
    for row in hooks:
        print(f"{row['parameters']:10} {row['weight_every']:13} {1e6 * row['median_seconds']:10.1f} "
              f"{1e6 * row['p99_seconds']:9.1f} {row['process_bytes_allocated_per_step']:12.0f}")
    paths.append(save(about, "hook_overhead", hooks))

    callbacks = lines_of(BIN / "sync_callback")
    callbacks += python_lines("sync_callback.py", BIN.parent / "lib" / "libgradvane_fake_cuda.so")
    print_sync_table(callbacks)
    paths.append(save(about, "sync_callback", callbacks))

    recordings = lines_of(BIN / "recording_cost", str(ROUNDS))
    print(f"\n{'parameters':>10} {'recorder, us':>12} {'with disk':>10} {'over JSON':>9} {'bytes':>8} {'over JSON':>9}")
    for row in recordings:
        print(f"{row['parameters']:10} {1e6 * row['memory_seconds']:12.0f} {1e6 * row['memory_and_disk_seconds']:10.0f} "
              f"{row['recorder_over_plain_seconds']:9.3f} {row['bytes']:8.0f} {row['recorder_over_plain_bytes']:9.3f}")
    paths.append(save(about, "recording_cost", recordings))

    in_python = python_lines("hook_cost.py")
    python_steps = [python_step_time(100, 1), python_step_time(100, cores)]
    print_python_tables(in_python, python_steps)
    tracing = python_lines("tracing_cost.py")
    for row in tracing:
        print(f"{row['case']:28} {row['arm']:40} {1e3 * row['seconds']:9.2f} ms, {row['over_off']:.3f} of unwatched")
    paths.append(save(about, "tracing_cost", tracing))
    for name in ("skip_cost", "snapshot_cost"):
        rows = python_lines(f"{name}.py")
        print_governor_table(rows)
        paths.append(save(about, name, rows))
    paths += [save(about, "python_hooks", in_python), save(about, "python_step_time", python_steps)]
    print("raw numbers:", ", ".join(str(path.relative_to(ROOT)) for path in paths))
    return 0


if __name__ == "__main__":
    sys.exit(main())
