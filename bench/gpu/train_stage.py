"""Stage train: GPT-2's shape trained in C++ on the GPU, with weights and gradients in bf16: without an agent and with several
settings of it, in turns, at several lengths of a step."""

import json
import os
import statistics
import tempfile
from pathlib import Path

from process import ROOT, StageError, run_or_fail, say

WARM_UP_STEPS = 10
STEPS = 60
ROUNDS = 5
BATCHES = (1, 4, 12)  # sequences of 1,024 characters: steps of some 10 to 150 ms on an H200, an estimate
DEFAULT_DATA = Path("/usr/share/common-licenses")  # char_gpt's own
OFF = "off"
# As in gpt2_arms.py: "ledger" has every option at its default, and each of the others adds one thing.
ARMS = {OFF: ["--no-agent"], "lagged": ["--gradvane-sync=off"], "immediate": ["--gradvane-sync=off", "--gradvane-mode=immediate"],
        "ledger": []}


def train(context, arm, batch, steps, folder):
    times, summary, log = folder / "times", folder / "summary.json", folder / "steps.jsonl"
    command = [context.build.program("char_gpt"), "--size", "gpt2", "--device", "cuda", "--weights", "bf16", "--batch", batch,
               "--steps", steps, "--clip-with", "torch",  # so that the weights must be the same
               "--no-eval", "--sample", "0", "--step-times", times, "--json", summary, "--seed", "1", *ARMS[arm]]
    if not DEFAULT_DATA.is_dir():
        command += ["--data", ROOT / "docs"]
    environment = {"GRADVANE_RUN_DIR": str(folder), "GRADVANE_PORT": "0"}
    if arm != OFF:
        environment["GRADVANE_STEP_LOG"] = str(log)
    done = run_or_fail("char_gpt", command, context.log, context.deadline, environment=environment)
    facts = json.loads(summary.read_text())
    result = {"arm": arm, "batch": batch, "process_seconds": done.seconds, "run_seconds": facts["seconds"],
              "step_seconds": [float(line) for line in times.read_text().split()][WARM_UP_STEPS:],
              "checksum": facts["weights_checksum"], "tokens_per_step": facts["tokens_per_step"],
              "parameters": facts["parameters"], "last_loss": facts["last_loss"]}
    if arm != OFF:
        rows = [json.loads(line) for line in log.read_text().splitlines()][WARM_UP_STEPS:]
        result |= {"hook_seconds": [row["agent_seconds"] for row in rows],
                   # A read that the agent cannot do costs nothing: what it read belongs to the time.
                   "param_states": rows[-1].get("param_states") if rows else None}
    return result


def compare(runs, batch):
    """Of one length: each arm over the training without an agent, in the same round."""
    of_arm = {arm: [run for run in runs if (run["arm"], run["batch"]) == (arm, batch)] for arm in ARMS}
    off = of_arm.pop(OFF)
    repeats = len({run["checksum"] for run in off}) == 1
    result = {"batch": batch, "rounds": len(off), "tokens_per_step": off[0]["tokens_per_step"],
              "seconds_off": statistics.median(value for run in off for value in run["step_seconds"]),
              "weights_repeat_without_agent": repeats if len(off) > 1 else None, "arms": {}}
    for arm, on in of_arm.items():
        ratios = [statistics.median(a["step_seconds"]) / statistics.median(b["step_seconds"]) for a, b in zip(on, off)]
        result["arms"][arm] = {
            "ratio_of_each_round": ratios, "median_ratio": statistics.median(ratios),
            # From a clock around all steps, the device's work at the end included.
            "run_ratio": statistics.median(a["run_seconds"] / b["run_seconds"] for a, b in zip(on, off)),
            "hook_seconds_per_step": statistics.fmean(value for run in on for value in run["hook_seconds"]),
            "param_states": on[-1]["param_states"],
            "weights_identical": {run["checksum"] for run in on} == {run["checksum"] for run in off}}
    return result


def rounds_of(context, steps, rounds):
    """All arms of all lengths once, then again while there is time."""
    runs = []
    for number in range(rounds):
        longest = sum(run["process_seconds"] for run in runs[:len(ARMS) * len(BATCHES)])
        if runs and 1.1 * longest > context.deadline.left():
            say(f"time for {number} rounds only")
            break
        # Which arm goes first changes, so that none always inherits a warm machine.
        order = [*ARMS][::-1] if number % 2 else [*ARMS]
        for batch in BATCHES:
            for arm in order:
                with tempfile.TemporaryDirectory() as folder:
                    runs.append(train(context, arm, batch, steps, Path(folder)))
    return runs


def run_stage(context):
    context.build.build(["char_gpt"], context.deadline)
    steps, rounds = (30, 2) if context.quick else (STEPS, ROUNDS)
    runs = rounds_of(context, steps, rounds)
    if not runs:
        raise StageError("there was no time for one round")
    results = [compare(runs, batch) for batch in BATCHES]
    failures = []
    print(f"{'batch':>5} {'off, ms':>9} {'arm':10} {'on / off':>9} {'whole run':>9} {'hooks, us':>10} {'rounds':>7}  "
          "same weights, parameters read")
    for result in results:
        for arm, found in result["arms"].items():
            print(f"{result['batch']:5} {1e3 * result['seconds_off']:9.2f} {arm:10} {found['median_ratio']:9.4f} {found['run_ratio']:9.4f} "
                  f"{1e6 * found['hook_seconds_per_step']:10.0f} {result['rounds']:7}  {found['weights_identical']}, {found['param_states']}")
            if result["weights_repeat_without_agent"] and not found["weights_identical"]:
                failures.append(f"batch {result['batch']}, {arm}: without the agent all runs have the same weights, with it they do not")
        if result["weights_repeat_without_agent"] is False:
            say("weights differ from run to run without the agent, too: torch's own atomics, nothing to compare")
    return {"lengths": results, "steps_per_run": steps, "warm_up_steps": WARM_UP_STEPS, "cores": os.cpu_count(),
            "runs": runs, "failure": "; ".join(failures) or None}
