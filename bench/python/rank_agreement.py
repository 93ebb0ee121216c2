"""What it costs ranks to agree on a step, in one run with the way of the seed system.

    torchrun --standalone --nproc-per-node 4 bench/python/rank_agreement.py

`node` and `gloo`: the exchange of `ranks: agree`, one record of 112 bytes from every rank to every rank, in shared memory
and where that cannot be had. `object`: rank 0's decision as a pickled dictionary, by broadcast_object_list, which overrules
what the others saw. They take turns. Rank 0 prints one JSON object: microseconds of wall time on rank 0, and the ratios
of the medians.
"""

import argparse
import datetime
import json
import os
import statistics
import time

import torch.distributed as dist

from exchange_model import RECORD
from gradvane._ranks.meeting import Meeting, gather_over


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    dist.init_process_group("gloo")
    on_node = Meeting(datetime.timedelta(minutes=1))
    record = bytes(RECORD)
    on_node.exchange(record)
    assert on_node.place == "node"
    over_gloo = gather_over(dist.new_group(backend="gloo"))
    decision = {"gate": "G3", "passed": True, "score": 0.93, "passed_checks": ["loss", "norm"], "failed_checks": [],
                "message": "all checks passed"}

    ways = {
        "node": lambda: on_node.exchange(record),
        "gloo": lambda: over_gloo(record),
        "object": lambda: dist.broadcast_object_list([decision], src=0),
    }
    taken = {name: [] for name in ways}
    for number in range(rounds + 50):
        for name, exchange in ways.items():
            dist.barrier()
            began = time.perf_counter()
            exchange()
            if number >= 50:
                taken[name].append(1e6 * (time.perf_counter() - began))
    if dist.get_rank() == 0:
        found = {name: {"p50": round(statistics.median(values), 1), "p99": round(percentile(values, 0.99), 1)}
                 for name, values in taken.items()}
        ratios = {f"{name}_to_object": round(found[name]["p50"] / found["object"]["p50"], 3) for name in ("node", "gloo")}
        print(json.dumps({"ranks": dist.get_world_size(), "cores": os.cpu_count(), "rounds": rounds, **found, **ratios}),
              flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
