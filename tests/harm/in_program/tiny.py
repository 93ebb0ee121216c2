"""A training that is over in a moment, for programs whose point is something else."""

import random

import torch


def make(seed=0, optimizer=torch.optim.SGD, **how):
    torch.manual_seed(seed)
    random.seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Dropout(0.2), torch.nn.Linear(6, 1))
    return model, optimizer(model.parameters(), **{"lr": 0.05, **how})


def step(model, optimizer, clip=None):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    if clip is not None:
        clip(model.parameters(), 0.1)
    optimizer.step()


def train(model, optimizer, steps=3, clip=None):
    for _ in range(steps):
        step(model, optimizer, clip)
