"""What it costs a training step that ranks agree, in one run with the way of the seed system.

    torchrun --standalone --nproc-per-node 2 bench/python/rank_agreement_steps.py

A small model under DistributedDataParallel, on CPUs. `off`: the policy skip, each rank by itself. `agree`: the same with
`ranks: agree`. `looks`: also with check_before_reduction, and compare_replicas_every = 10. `object`: as `off`, and rank 0's
decision as a pickled dictionary in each step, by broadcast_object_list. They take turns, in blocks of steps. Rank 0 prints
one JSON object: milliseconds of wall time per step, p50 and p99, and the ratios of the medians to `off`.
"""

import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist

import gradvane

AGREES = {"ranks": "agree"}
WAYS = {"off": {}, "agree": AGREES, "looks": {**AGREES, "check_before_reduction": True, "compare_replicas_every": 10}, "object": {}}
WARM = 20
"""steps of a block that do not count"""


def block(way, folder, steps, width):
    """Milliseconds of each step."""
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    net = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    agent = gradvane.attach(model, optimizer, port=-1, run_dir=folder, on_nonfinite="skip", **WAYS[way])
    data, taken = torch.randn(32, width), []
    for number in range(steps + WARM):
        began = time.perf_counter()
        optimizer.zero_grad()
        net(data).square().mean().backward()
        if way == "object":
            dist.broadcast_object_list([{"gate": "G3", "passed": True, "failed_checks": []}], src=0)
        optimizer.step()
        if number >= WARM:
            taken.append(1e3 * (time.perf_counter() - began))
    agent.detach()
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="blocks of each way")
    parser.add_argument("--steps", type=int, default=100, help="in a block")
    parser.add_argument("--width", type=int, default=512, help="of the layers: 4 of width x width")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    taken = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for way in WAYS:
                dist.barrier()
                taken[way] += block(way, folder, options.steps, options.width)
    if dist.get_rank() == 0:
        found = {way: {"p50": round(statistics.median(values), 3), "p99": round(statistics.quantiles(values, n=100)[98], 3)}
                 for way, values in taken.items()}
        ratios = {f"{way}_to_off": round(found[way]["p50"] / found["off"]["p50"], 3) for way in WAYS if way != "off"}
        print(json.dumps({"ranks": dist.get_world_size(), "cores": os.cpu_count(), "width": options.width,
                          "steps": options.rounds * options.steps, **found, **ratios}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
