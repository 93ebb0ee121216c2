"""What it costs to look at the gradients before the optimizer takes a step, in one run of several ways to do it.

Each arm is what stands between backward() and the end of optimizer.step(), less that of the same step without a check:
CPU time, or with --device cuda the time until the device has done it too. "On device" is `skip_on_device`. Arms take turns within a round, and a ratio is of one round. Gradvane reads the gradients for its
statistics anyway: `skip` over `watch` is the price of the gate. torch's gradient scaler checks as it divides by its
scale, 1 here. One JSON object a line.
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn

import gradvane

CASES = {
    "100 linear layers, 256 x 256": (100, 256),
    "1000 linear layers, 64 x 64": (1000, 64),
    "5000 linear layers, 4 x 4": (5000, 4),
}


def clock(device):
    """Seconds; on a device after all that is under way."""
    if device == "cpu":
        return time.thread_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def measure(case, device, rounds, steps):
    layers, width = CASES[case]
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)]).to(device)
    params = list(model.parameters())
    optimizer = torch.optim.SGD(params, 1e-9, fused=device != "cpu")
    inputs = torch.randn(8, width, device=device)
    scaler = torch.amp.GradScaler(device, init_scale=1.0, growth_interval=10**9)

    def per_parameter():
        if all(torch.isfinite(param.grad).all() for param in params):
            optimizer.step()

    def with_scaler():
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    arms = {"no check": optimizer.step, "gradvane, watch": optimizer.step, "gradvane, skip": optimizer.step,
            "GradScaler": with_scaler, "isfinite per parameter": per_parameter}
    if device != "cpu":
        arms["gradvane, skip on device"] = optimizer.step

    def seconds_of(name):
        agent = None
        if name.startswith("gradvane"):
            agent = gradvane.attach(model, optimizer, port=-1, run="skips", weight_every=0, recorder=False,
                                    on_nonfinite=name.split()[1], skip_on_device=name.endswith("on device"))
        taken = []
        for number in range(steps + 3):  # the first ones make what is made once
            optimizer.zero_grad()
            loss = model(inputs).sum()
            (scaler.scale(loss) if name == "GradScaler" else loss).backward()
            start = clock(device)
            arms[name]()
            if number >= 3:
                taken.append(clock(device) - start)
        if agent is not None:
            agent.detach()
        return statistics.median(taken)

    seconds = {name: [] for name in arms}
    for number in range(rounds):
        for name in list(arms) if number % 2 else list(reversed(arms)):
            seconds[name].append(seconds_of(name))
    extra = {name: [a - b for a, b in zip(seconds[name], seconds["no check"])] for name in arms}
    rows = []
    for name in arms:
        against = {rival: statistics.median(a / b for a, b in zip(extra[name], extra[rival]) if b > 0)
                   for rival in ("gradvane, watch", "GradScaler", "isfinite per parameter")
                   if name.startswith("gradvane, skip")}
        rows.append({"case": case, "device": device, "arm": name, "threads": torch.get_num_threads(), "rounds": rounds,
                     "steps_per_round": steps, "seconds": statistics.median(seconds[name]),
                     "extra_seconds": statistics.median(extra[name]), "extra_over_rival": against})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for case in arguments.cases:
        for row in measure(case, arguments.device, arguments.rounds, arguments.steps):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
