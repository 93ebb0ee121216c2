"""Host time that the agent's hooks add to a step in Python, against what people do instead, in one run.

An optimizer that does nothing, gradients that are there already, a backward pass over one element: what is
left is the cost of being watched. Arms take turns. One JSON object a line.
"""

import argparse
import json
import statistics
import time

import torch

import gradvane


class Idle(torch.optim.Optimizer):
    """Steps without doing anything, so that hooks are all there is."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    def step(self, closure=None):
        return None


def seconds(work, times):
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def rivals(params):
    """What helpers of trainers and loggers do once a step, written plainly."""

    def item_loop():  # as gradient-norm helpers of trainers log it: one number of each parameter
        return [p.grad.norm().item() for p in params]

    def histograms():  # as loggers that watch gradients do it: counts, smallest and largest of each parameter
        out = []
        for p in params:
            flat = p.grad.detach().float().flatten()
            low, high = flat.min().item(), flat.max().item()
            out.append((torch.histc(flat, 64, low, high).tolist(), low, high))
        return out

    return {
        # No rival, but what Python takes to reach each gradient on this machine at this moment.
        "list of gradients": lambda: [p.grad for p in params],
        "clip_grad_norm_": lambda: torch.nn.utils.clip_grad_norm_(params, 1e9),
        "norm().item() loop": item_loop,
        "histograms": histograms,
    }


def measure(count, elements, rounds, clips):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(elements)) for _ in range(count)]
    for p in params:
        p.grad = torch.randn(elements)
    optimizer = Idle(params)
    spark = torch.ones((), requires_grad=True)
    times = max(5, min(200, 200_000 // count))

    def cycle():
        (spark * 1).backward()
        if clips:
            torch.nn.utils.clip_grad_norm_(params, 1e9)
        optimizer.step()

    arms = {"off": [], "on": []}
    others = {name: [] for name in rivals(params)}
    for _ in range(rounds):
        arms["off"].append(seconds(cycle, times))
        agent = gradvane.attach(None, optimizer, port=-1, weight_every=0, run="hooks", ring_slots=8)
        cycle()  # makes the plan
        arms["on"].append(seconds(cycle, times))
        agent.detach()
        for name, work in rivals(params).items():
            others[name].append(seconds(work, max(2, times // 20)))
    added = statistics.median(on - off for on, off in zip(arms["on"], arms["off"]))
    return {
        "parameters": count, "elements_each": elements, "clips": clips, "rounds": rounds,
        "added_seconds": added, "raw_on": arms["on"], "raw_off": arms["off"],
        "rivals": {name: statistics.median(taken) for name, taken in others.items()},
        "gradvane_over_rival": {name: added / statistics.median(taken) for name, taken in others.items()},
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for count in (150, 1_000, 10_000):
        for clips in (False, True):
            print(json.dumps(measure(count, 64, options.rounds, clips)), flush=True)


if __name__ == "__main__":
    main()
