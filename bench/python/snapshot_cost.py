"""What a snapshot of a training's state costs a step, against two ways to keep a copy that people use, in one run.

Every arm makes one copy per step, of model and optimizer. Arms take turns, some steps of each in a round, and a ratio
is of one round. Gradvane's copy is checked for finite numbers and has a checksum, and the rivals check nothing. On a
CPU it is the process's CPU time of the copy that counts; on a device the time of whole steps, since Gradvane's copies
run beside the next forward and backward pass. One JSON object a line.
"""

import argparse
import copy
import json
import statistics
import time

import small_training
import torch
from torch import nn

import gradvane


def transformer(width, context):
    small_training.WIDTH, small_training.CONTEXT = width, context
    model = small_training.Model()
    words = torch.randint(0, small_training.WORDS, (small_training.BATCH, context))

    def loss(model, words):
        return nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())

    return model, (words,), loss


def many_layers(layers, width):
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])
    return model, (torch.randn(8, width),), lambda model, inputs: model(inputs).square().mean()


CASES = {
    "transformer, width 128": lambda: transformer(128, 64),
    "transformer, width 512": lambda: transformer(512, 64),
    "1000 linear layers, 64 x 64": lambda: many_layers(1000, 64),
    "5000 linear layers, 4 x 4": lambda: many_layers(5000, 4),
}


def on_host(value):
    """A synchronous copy of what a state_dict() holds."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: on_host(item) for key, item in value.items()}
    return [on_host(item) for item in value] if isinstance(value, list) else value


def measure(case, device, rounds, steps):
    torch.manual_seed(0)
    model, inputs, loss = CASES[case]()
    model, inputs = model.to(device), [one.to(device) for one in inputs]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
    agent = gradvane.attach(model, optimizer, port=-1, run="snapshots", weight_every=0)
    keeper = agent._watcher.keeper
    held = {}

    def step():
        optimizer.zero_grad()
        loss(model, *inputs).backward()
        optimizer.step()

    def state():
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def step_with_snapshot():
        keeper.keep(every=1)
        step()
        keeper.keep()

    def deepcopy():
        held["kept"] = copy.deepcopy(state())

    def state_dict():
        held["kept"] = on_host(state())

    copies = {"no copy": lambda: None, "gradvane": keeper.snapshot, "copy.deepcopy": deepcopy,
              "state_dict to the CPU": state_dict}

    def seconds_of(name):
        """On a CPU those of the copy alone, on a device those of the whole step."""
        if device == "cpu":
            step()
            start = time.process_time()
            copies[name]()
            return time.process_time() - start
        start = time.perf_counter()
        if name == "gradvane":
            step_with_snapshot()
        else:
            step()
            copies[name]()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    for name in [*copies, *copies]:  # what is made once
        seconds_of(name)
    taken = {name: [] for name in copies}
    extra = {name: [] for name in copies}
    committed = keeper.snapshots.committed
    for number in range(rounds):
        medians = {}
        for name in list(copies) if number % 2 else list(reversed(copies)):
            seconds = [seconds_of(name) for _ in range(steps)]
            taken[name] += seconds
            medians[name] = statistics.median(seconds)
        for name in copies:
            extra[name].append(medians[name] - medians["no copy"])
    keeper.snapshots.settle(wait=True)
    snapshots = keeper.snapshots.committed - committed
    state_bytes = keeper.snapshots.bytes // 2
    agent.detach()
    rows = []
    for name in copies:
        against = {
            rival: statistics.median(a / b for a, b in zip(extra[name], extra[rival]) if b > 0)
            for rival in ("copy.deepcopy", "state_dict to the CPU") if name == "gradvane"
        }
        rows.append({"case": case, "device": device, "arm": name, "threads": torch.get_num_threads(), "rounds": rounds,
                     "steps_per_round": steps, "state_bytes": state_bytes, "snapshots_committed": snapshots,
                     "seconds": statistics.median(taken[name]), "extra_seconds": statistics.median(extra[name]),
                     "extra_over_rival": against})
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--case", choices=CASES, action="append")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in options.case or CASES:
        for row in measure(case, options.device, options.rounds, options.steps):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
