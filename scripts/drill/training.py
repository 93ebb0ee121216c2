"""A small training that breaks in one way when it is told to. A program of its own, run by the drill.

    python training.py FAULT FOLDER

It begins to break when FOLDER/trigger appears, writes when and at which step to FOLDER/event.json, heals, and
goes on until FOLDER/stop appears.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

import gradvane

STEP_SECONDS = 0.05
STALL_SECONDS = 12.0
# How many steps in a row are bad. The norm is judged three in a row, overflow eight.
BAD_STEPS = {"nan_gradient": 1, "dies_of_nan": 1, "inf_loss": 1, "exploding_norm": 8, "overflow": 10, "stall": 1}
BAD_ELEMENT = 13
SPOILED = ("nan_gradient", "dies_of_nan", "exploding_norm", "overflow")


class Breaker:
    """What is wrong with the step in hand."""

    def __init__(self, fault: str, folder: Path, model: torch.nn.Module) -> None:
        self._fault = fault
        self._folder = folder
        self._left: int | None = None
        self.is_bad = False
        for name, parameter in model.named_parameters():
            parameter.register_hook(lambda gradient, name=name: self._spoil(name, gradient))

    def begin(self, step: int) -> None:
        if self._left is None and (self._folder / "trigger").exists():
            self._left = BAD_STEPS.get(self._fault, 0)
            if self._left:
                event = self._folder / "event.tmp"
                event.write_text(json.dumps({"at": time.time(), "step": step}), encoding="utf-8")
                os.replace(event, self._folder / "event.json")
        self.is_bad = bool(self._left)
        if self._left:
            self._left -= 1
        if self.is_bad and self._fault == "stall":
            time.sleep(STALL_SECONDS)

    def loss(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * float("inf") if self.is_bad and self._fault == "inf_loss" else loss

    def _spoil(self, name: str, gradient: torch.Tensor) -> torch.Tensor:
        if not self.is_bad or self._fault not in SPOILED:
            return gradient
        if self._fault == "exploding_norm":
            return gradient * 1e4
        if name != "body.weight":
            return gradient
        gradient = gradient.clone()
        bad = float("inf") if self._fault == "overflow" else float("nan")
        gradient.view(-1)[BAD_ELEMENT] = bad
        return gradient


def main() -> None:
    fault, folder = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(7)
    torch.set_num_threads(1)
    model = torch.nn.Sequential()
    model.add_module("body", torch.nn.Linear(8, 8))
    model.add_module("act", torch.nn.Tanh())
    model.add_module("head", torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaler: Any = torch.amp.GradScaler("cpu") if fault == "overflow" else None
    inputs, wanted = torch.randn(32, 8), torch.randn(32, 1)
    breaker = Breaker(fault, folder, model)
    gradvane.attach(model, optimizer, weight_every=0)
    step = 0
    while not (folder / "stop").exists():
        step += 1
        breaker.begin(step)
        # A bad step is taken back, so that the run heals by itself.
        before = [parameter.detach().clone() for parameter in model.parameters()] if breaker.is_bad else []
        optimizer.zero_grad()
        loss = breaker.loss(torch.nn.functional.mse_loss(model(inputs), wanted))
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), before):
                parameter.copy_(value)
        if breaker.is_bad and fault == "dies_of_nan":
            time.sleep(0.1)
            raise RuntimeError("gradients are not finite")
        time.sleep(STEP_SECONDS)


if __name__ == "__main__":
    main()
