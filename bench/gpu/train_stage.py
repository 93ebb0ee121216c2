"""Stage train: GPT-2's shape trained on the GPU with and without the agent, in turns."""

import json
import os
import statistics
import tempfile
from pathlib import Path

from process import ROOT, StageError, run_or_fail, say

WARM_UP_STEPS = 10
STEPS = 60
ROUNDS = 5
DEFAULT_DATA = Path("/usr/share/common-licenses")  # char_gpt's own


def train(context, agent, steps, folder):
    times, summary, log = folder / "times", folder / "summary.json", folder / "steps.jsonl"
    command = [context.build.program("char_gpt"), "--size", "gpt2", "--device", "cuda", "--steps", steps,
               "--clip-with", "torch",  # so that the weights must be the same
               "--no-eval", "--sample", "0", "--step-times", times, "--json", summary, "--seed", "1"]
    if not DEFAULT_DATA.is_dir():
        command += ["--data", ROOT / "docs"]
    environment = {"GRADVANE_RUN_DIR": str(folder), "GRADVANE_PORT": "0"}
    if agent:
        environment["GRADVANE_STEP_LOG"] = str(log)
    else:
        command.append("--no-agent")
    done = run_or_fail("char_gpt", command, context.log, context.deadline, environment=environment)
    facts = json.loads(summary.read_text())
    result = {"agent": agent, "process_seconds": done.seconds, "run_seconds": facts["seconds"],
              "step_seconds": [float(line) for line in times.read_text().split()][WARM_UP_STEPS:],
              "checksum": facts["weights_checksum"], "tokens_per_step": facts["tokens_per_step"],
              "parameters": facts["parameters"], "last_loss": facts["last_loss"]}
    if agent:
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        result |= {"hook_seconds": [row["agent_seconds"] for row in rows[WARM_UP_STEPS:]],
                   # A read that the agent cannot do costs nothing: what it read belongs to the time.
                   "param_states": rows[-1].get("param_states") if rows else None}
    return result


def compare(runs):
    on = [run for run in runs if run["agent"]]
    off = [run for run in runs if not run["agent"]]
    if not on or not off:
        raise StageError("there was no time for one run of each")
    pairs = [(statistics.median(a["step_seconds"]), statistics.median(b["step_seconds"]))
             for a, b in zip(on, off)]
    steps_on = [value for run in on for value in run["step_seconds"]]
    steps_off = [value for run in off for value in run["step_seconds"]]
    repeats = len({run["checksum"] for run in off}) == 1
    return {
        "rounds": len(pairs),
        "seconds_on": statistics.median(steps_on), "seconds_off": statistics.median(steps_off),
        "ratio_of_each_round": [a / b for a, b in pairs],
        "median_ratio": statistics.median(a / b for a, b in pairs),
        # From a clock around all steps, the device's work at the end included.
        "run_ratio": statistics.median(a["run_seconds"] / b["run_seconds"] for a, b in zip(on, off)),
        "hook_seconds_per_step": statistics.fmean(value for run in on for value in run["hook_seconds"]),
        "param_states": on[-1]["param_states"],
        "weights_repeat_without_agent": repeats if len(off) > 1 else None,
        "weights_identical": len({run["checksum"] for run in runs}) == 1,
        "tokens_per_second_off": off[0]["tokens_per_step"] / statistics.median(steps_off),
    }


def run_stage(context):
    context.build.build(["char_gpt"], context.deadline)
    steps, rounds = (30, 2) if context.quick else (STEPS, ROUNDS)
    runs = []
    for number in range(rounds):
        longest = max((run["process_seconds"] for run in runs), default=0)
        if number > 1 and 2.2 * longest > context.deadline.left():
            say(f"time for {number} rounds only")
            break
        # Which arm goes first changes, so that neither always inherits a warm machine.
        for agent in (True, False) if number % 2 else (False, True):
            with tempfile.TemporaryDirectory() as folder:
                runs.append(train(context, agent, steps, Path(folder)))
    result = compare(runs)
    print(f"{'off, ms':>9} {'on, ms':>9} {'on / off':>9} {'whole run':>9} {'hooks, us':>10} {'rounds':>7}  "
          "same weights, parameters read")
    print(f"{1e3 * result['seconds_off']:9.2f} {1e3 * result['seconds_on']:9.2f} "
          f"{result['median_ratio']:9.4f} {result['run_ratio']:9.4f} "
          f"{1e6 * result['hook_seconds_per_step']:10.0f} {result['rounds']:7}  "
          f"{result['weights_identical']}, {result['param_states']}")
    failure = None
    if result["weights_repeat_without_agent"] and not result["weights_identical"]:
        failure = "the agent changed the weights: without it all runs agree, with it they do not"
    elif not result["weights_repeat_without_agent"]:
        say("weights differ from run to run without the agent, too: torch's own atomics, nothing to compare")
    return {**result, "steps_per_run": steps, "warm_up_steps": WARM_UP_STEPS, "cores": os.cpu_count(),
            "runs": runs, "failure": failure}
