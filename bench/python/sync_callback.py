"""What the ledger's own callbacks cost a host sync that Python asked for, its line looked up included, with
the GIL released as torch does around its syncs, against what it takes to ask the interpreter for the same line.
Over a CUPTI that does nothing (build/<preset>/lib/libgradvane_fake_cuda.so). One JSON object a line.
"""

import argparse
import ctypes
import json
import statistics
import time
import traceback

import torch
from torch._C._profiler import gather_traceback

import gradvane

CALLS = 4_000  # no more than a thread's events between two looks of the worker
LOOKS = 0.05  # seconds in which the worker has looked


def nested(depth, work):
    return work() if depth == 0 else nested(depth - 1, work)


def per_call(work, calls=2_000):
    start = time.perf_counter_ns()
    for _ in range(calls):
        work()
    return (time.perf_counter_ns() - start) / calls


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("library")
    arguments.add_argument("--rounds", type=int, default=15)
    options = arguments.parse_args()
    fake = ctypes.CDLL(options.library)
    fake.fake_measure.restype = ctypes.c_double
    fake.fake_measure.argtypes = [ctypes.c_long]
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.ones(1, 2)).sum().backward()
    for depth in (0, 30):
        arms = {"ledger": [], "torch_gather": [], "extract_stack": []}
        for _ in range(options.rounds):
            with gradvane.attach(model, optimizer, sync="require", sync_library=options.library, port=-1):
                optimizer.step()  # syncs are booked on steps from here on
                for _ in range(10):
                    arms["ledger"].append(nested(depth, lambda: fake.fake_measure(CALLS)))
                    time.sleep(LOOKS)
            arms["torch_gather"].append(
                nested(depth, lambda: per_call(lambda: gather_traceback(python=True, script=False, cpp=False))))
            arms["extract_stack"].append(nested(depth, lambda: per_call(lambda: traceback.extract_stack(limit=1))))
        middle = {name: statistics.median(values) for name, values in arms.items()}
        print(json.dumps({
            "bench": "sync_callback_python", "frames": depth + 3, "calls": CALLS,
            "ledger_ns": round(middle["ledger"], 1), "torch_gather_ns": round(middle["torch_gather"], 1),
            "extract_stack_ns": round(middle["extract_stack"], 1)}))


if __name__ == "__main__":
    main()
