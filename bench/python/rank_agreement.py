"""What it costs ranks to agree on a step, over gloo, in one run with the way of the seed system.

    torchrun --standalone --nproc-per-node 4 bench/python/rank_agreement.py

`record`: the exchange of `ranks: agree`, one record of 96 bytes from every rank to every rank. `object`: rank 0's
decision as a pickled dictionary, by broadcast_object_list, which overrules what the others saw. The two take turns.
Rank 0 prints one JSON object: microseconds of wall time on rank 0, and the ratio of the medians.
"""

import argparse
import json
import os
import statistics
import time

import torch.distributed as dist

from gradvane._ranks.agreement import Agreement


class Native:
    """Agreement asks it for nothing here."""


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    dist.init_process_group("gloo")
    agreement = Agreement(Native())
    record = bytes(96)
    decision = {"gate": "G3", "passed": True, "score": 0.93, "passed_checks": ["loss", "norm"], "failed_checks": [],
                "message": "all checks passed"}

    def by_record():
        agreement._exchange(record)

    def by_object():
        dist.broadcast_object_list([decision], src=0)

    taken = {"record": [], "object": []}
    for number in range(rounds + 50):
        for name, exchange in (("record", by_record), ("object", by_object)):
            dist.barrier()
            began = time.perf_counter()
            exchange()
            if number >= 50:
                taken[name].append(1e6 * (time.perf_counter() - began))
    if dist.get_rank() == 0:
        found = {name: {"p50": round(statistics.median(values), 1), "p99": round(percentile(values, 0.99), 1)}
                 for name, values in taken.items()}
        ratio = statistics.median(taken["record"]) / statistics.median(taken["object"])
        print(json.dumps({"ranks": dist.get_world_size(), "cores": os.cpu_count(), "rounds": rounds, **found,
                          "ratio_p50": round(ratio, 3)}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
