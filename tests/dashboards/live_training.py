"""A small training in Python that shows what the C++ demo does not: a gradient scaler that overflows, numbers of
one's own, checkpoints, snapshots and a rollback.

    python live_training.py FOLDER

It begins to break when FOLDER/trigger appears, and goes on until it is ended.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

import gradvane

# Steps after the trigger.
OVERFLOWS = (20, 60)
NAN = 40
GOES_BACK = 50


def main() -> None:
    trigger = Path(sys.argv[1]) / "trigger"
    torch.manual_seed(7)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", growth_interval=30)
    inputs, wanted = torch.randn(32, 8), torch.randn(32, 1)
    bad = float("inf")
    now_bad = False

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * bad if now_bad else gradient

    model[0].weight.register_hook(spoil)
    agent = gradvane.attach(model, optimizer, weight_every=5)
    step = since = 0
    while True:
        step += 1
        since += trigger.exists()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        now_bad = since in OVERFLOWS
        gradvane.log(loss=loss * float("nan") if since == NAN else loss, accuracy=0.5)
        if step % 50 == 0:
            gradvane.log(checkpoint_timestamp_seconds=time.time())
        gradvane.count(tokens=256, samples=32)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            agent.snapshot()
        if since == GOES_BACK:
            agent.rollback("a test")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
