"""The ways to train that gpt2_steps.py compares, and what one block of steps of each of them takes."""

import json
import os
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path

import torch

import gradvane

WARM_UP = 3  # steps of each block that are not timed: they make what is made once
COUNTED = 5  # steps in which host syncs are counted

# "ledger" has every option at its default. In the other two its counts are off, so that each adds one thing.
OPTIONS = {"lagged": {"mode": "lagged", "sync": "off"}, "immediate": {"mode": "immediate", "sync": "off"},
           "ledger": {"mode": "lagged", "sync": "auto"}}
NAIVE = "isfinite per parameter"
# The plain arm is there twice: how far the two are apart is what the machine adds.
ARMS = ("off", "lagged", "immediate", "ledger", NAIVE, "off, again")


def isfinite_per_parameter(params):
    return not any(not torch.isfinite(p.grad).all() for p in params)


def check_of(arm):
    return isfinite_per_parameter if arm == NAIVE else None


def visible_state(training):
    """What an agent that is gone must have left as it was."""
    optimizer = training.optimizer
    hooks = [optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks]
    for module in training.model.modules():
        hooks += [module._forward_hooks, module._forward_pre_hooks, module._backward_hooks]
    hooks += [param._backward_hooks or () for param in training.params]
    hooks += [param._post_accumulate_grad_hooks or () for param in training.params]
    return (sum(map(len, hooks)), sorted(vars(optimizer)), type(optimizer).step, torch.Tensor.backward,
            torch.autograd.backward, torch.nn.utils.clip_grad_norm_)


class Block:
    """Steps in a row, timed."""

    def __init__(self, training, steps, check):
        cuda = training.device.type == "cuda"
        if cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
            events[0].record()
        self.host_seconds = []
        start = time.perf_counter()
        for number in range(steps):
            before = time.perf_counter()
            training.step(check)
            self.host_seconds.append(time.perf_counter() - before)
            if cuda:
                events[number + 1].record()
        if cuda:
            torch.cuda.synchronize()
        self.mean_seconds = (time.perf_counter() - start) / steps
        # Between the ends of two steps on the device: waits for the host are in them.
        self.seconds = [a.elapsed_time(b) * 1e-3 for a, b in zip(events, events[1:])] if cuda else self.host_seconds
        self.peak_bytes = torch.cuda.max_memory_allocated() if cuda else None
        free, total = torch.cuda.mem_get_info() if cuda else (0, 0)
        # With what does not come from torch's allocator, such as the agent's memory on the device.
        self.device_used_bytes = total - free if cuda else None


def attach(training, folder, **options):
    os.environ["GRADVANE_QUIET"] = "1"
    return gradvane.attach(training.model, training.optimizer, run="gpt2", run_dir=folder, **options)


def asked(agent, what):
    with urllib.request.urlopen(f"{agent.url}/api/v1/{what}", timeout=10) as answer:
        return json.load(answer)


def leave(agent, training, plain):
    """Detaches it. What went wrong, as sentences: rows that are there already stay, so nothing is raised."""
    agent.detach()
    problems = [f"the agent had {agent._watcher.faults} faults"] if agent._watcher.faults else []
    if visible_state(training) != plain:
        problems.append("the agent left something behind: the next plain arm is not plain")
    return problems


def what_it_did(agent, steps):
    agent.flush()
    last, seen = agent.last_step, agent.status().steps
    problems = [] if seen == steps else [f"the agent saw {seen} steps of {steps}"]
    reads = last is not None and last.grad_norm is not None
    if not reads:  # A read that the agent cannot do costs nothing.
        problems.append("the agent read no gradients")
    try:
        reason = asked(agent, "syncs")["reason"]
    except (OSError, ValueError) as error:
        reason = None
        problems.append(f"the agent's endpoint did not answer: {error}")
    return {"incidents": len(agent.incidents), "sync_reason": reason, "problems": problems}


def run_block(training, arm, steps, plain):
    """A row of one block. An agent is attached for it and detached after it."""
    check, row = check_of(arm), {}
    with tempfile.TemporaryDirectory() as folder:
        agent = attach(training, folder, port=0, **OPTIONS[arm]) if arm in OPTIONS else None
        for _ in range(WARM_UP):
            training.step(check)
        block = Block(training, steps, check)
        if agent is not None:
            row = what_it_did(agent, WARM_UP + steps)
            row["problems"] += leave(agent, training, plain)
    return row | {
        "steps": steps, "median_seconds": statistics.median(block.seconds), "mean_seconds": block.mean_seconds,
        "host_seconds": statistics.median(block.host_seconds), "peak_bytes": block.peak_bytes,
        "device_used_bytes": block.device_used_bytes, "threads": len(os.listdir("/proc/self/task")),
        "step_seconds": [round(seconds, 7) for seconds in block.seconds]}


def host_syncs(training, arm, plain):
    """Per step, by whose they are, in steps of their own that are not timed; None where nothing is counted. And what went
    wrong.

    An agent counts them in every arm; of its own only those of the arm are said.
    """
    mode = OPTIONS.get(arm, OPTIONS["lagged"])["mode"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "steps.jsonl"
        agent = attach(training, folder, port=-1, mode=mode, sync="auto", step_log=log)
        for _ in range(WARM_UP + COUNTED):
            training.step(check_of(arm))
        agent.flush()
        problems = leave(agent, training, plain)
        rows = [json.loads(line) for line in log.read_text().splitlines()]
    counted = [row["syncs"] for row in rows[WARM_UP:] if "syncs" in row]
    if not counted:
        return None, problems
    origins = ("training", "gradvane") if arm in OPTIONS else ("training",)
    return {origin: statistics.fmean(syncs.get(origin, {}).get("calls", 0) for syncs in counted) for origin in origins}, problems
