"""Trainings of a small net whose gradients, or whose loss, are not finite at some steps, and what is left of them."""

from __future__ import annotations

import copy
import io

import torch
from small_net import net

NAN = float("nan")

OPTIMIZERS = {
    "SGD with momentum": lambda params: torch.optim.SGD(params, 0.05, momentum=0.9, weight_decay=0.01),
    "SGD, foreach": lambda params: torch.optim.SGD(params, 0.05, momentum=0.9, foreach=True),
    "Adam": lambda params: torch.optim.Adam(params, 1e-2),
    "AdamW, foreach": lambda params: torch.optim.AdamW(params, 1e-2, foreach=True),
    "AdamW, fused": lambda params: torch.optim.AdamW(params, 1e-2, fused=True),
    "Adagrad": lambda params: torch.optim.Adagrad(params, 1e-2),
}


def batches(count, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(4, 6, generator=generator) for _ in range(count)]


def made(make=OPTIMIZERS["SGD with momentum"], seed=0):
    torch.manual_seed(seed)
    model = net()
    return model, make(model.parameters())


def backward(model, optimizer, batch, bad=None):
    """`bad`: None, "grad" for one element of a gradient, "all" for all of them, "loss" for the loss alone."""
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    if bad == "loss":
        loss = loss + torch.where(torch.tensor(True), torch.tensor(NAN), loss.detach())
    loss.backward()
    if bad == "grad":
        model[0].weight.grad[1, 2] = NAN
    if bad == "all":
        for param in model.parameters():
            param.grad.fill_(NAN)
    return loss.detach()


def state_bytes(*parts):
    """Every byte of state dicts, with the steps that optimizers and schedules count."""
    file = io.BytesIO()
    torch.save([copy.deepcopy(part.state_dict()) for part in parts], file)
    return file.getvalue()


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def equal(one, other):
    """Bit by bit: dicts, lists, tensors, numbers."""
    if isinstance(one, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape
        return same and bytes(one.detach().contiguous().untyped_storage()) == bytes(
            other.detach().contiguous().untyped_storage())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other
