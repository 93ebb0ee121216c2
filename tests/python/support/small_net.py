"""A net of four parameters, and a step of it."""

import torch
from conftest import reference_norm


def one_step(model, optimizer, inputs=None):
    optimizer.zero_grad()
    inputs = torch.randn(4, 6) if inputs is None else inputs
    loss = model(inputs).square().mean()
    loss.backward()
    norm = reference_norm([p for g in optimizer.param_groups for p in g["params"]])
    optimizer.step()
    return float(loss.detach()), norm


def net():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
