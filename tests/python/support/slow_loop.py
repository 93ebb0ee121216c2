"""A loop whose data, saves and pauses take a while: what was slept is a lower bound of a phase's time."""

import io
import time

import torch
from torch.utils.data import Dataset

NAP = 0.06


class Slow(Dataset):
    """Each sample takes a while, or raises."""

    def __init__(self, length=4, nap=NAP, fails_at=None):
        self.length, self.nap, self.fails_at = length, nap, fails_at

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.fails_at:
            raise OSError("the disk is gone")
        time.sleep(self.nap)
        return torch.full((6,), float(index + 1))


class SlowFile(io.BytesIO):
    def write(self, data):
        time.sleep(NAP)
        return super().write(data)


def step(model, optimizer, x=None, between=lambda: None):
    loss = model(torch.ones(2, 6) if x is None else x).square().mean()
    between()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def phases_of(record):
    return record.get("phase_seconds", {})


def slept(record, name, naps=1):
    """More than half of what was slept in that phase, and no more than the step took."""
    return naps * NAP / 2 < phases_of(record)[name] <= record["step_seconds"]
