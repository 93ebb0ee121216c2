"""Small models that go bad where they are told to, and a watched training of one."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module


class Bad(nn.Module):
    """Divides 0 by 0 while it is armed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False

    def forward(self, x):
        return x * 0 / 0 if self.is_armed else x * 1


class BadBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("nan")


class BadBack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False

    def forward(self, x):
        return BadBackward.apply(x) if self.is_armed else x * 1


class Block(nn.Module):
    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.inner = inner or nn.Identity()
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.out(self.inner(self.norm(x)).relu())


class Model(nn.Module):
    def __init__(self, *inners: nn.Module | None) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(Block(inner) for inner in inners)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def data(rows: int = 3):
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(1))


def train(model, optimizer, inputs=None):
    optimizer.zero_grad()
    model(data() if inputs is None else inputs).square().mean().backward()
    optimizer.step()


@pytest.fixture
def tracing(watching):
    def start(model, trace="always", **options):
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        start.agent = watching(model, optimizer, trace_nonfinite=trace, **options)
        return optimizer

    yield start
    if start.agent is not None:
        assert start.agent._watcher.faults == start.agent._watcher.tracer.faults == 0


def where(agent):
    found = agent.traced()
    return None if found is None else (found.name, found.type, found.at, "backward" if found.is_backward else "forward")


def hooks_of_modules() -> int:
    found = len(torch_module._global_forward_hooks) + len(torch_module._global_forward_pre_hooks)
    assert bool(found) == bool(torch_module._has_any_global_hook())
    return found


def hooks_in(model) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules())
