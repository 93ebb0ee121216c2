"""A tiny training of 100 steps a second until its standard input ends; a line for each step: when, and seconds of work.

Run under `gradvane run`. Its steps are paced, so that a slow machine and a fast one take as many.
"""

import select
import sys
import time

import torch
from torch import nn

STEP_SECONDS = 0.01


def main(times):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(*[layer for _ in range(20) for layer in (nn.Linear(64, 64), nn.Tanh())])
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    inputs = torch.randn(256, 8, 64)
    step, due = 0, time.perf_counter()
    with open(times, "w", buffering=1) as out:
        while not select.select([sys.stdin], [], [], 0)[0]:
            start = time.perf_counter()
            optimizer.zero_grad()
            loss = model(inputs[step % len(inputs)]).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            out.write(f"{time.time()} {time.perf_counter() - start}\n")
            step += 1
            due = max(due + STEP_SECONDS, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))


if __name__ == "__main__":
    main(sys.argv[1])
