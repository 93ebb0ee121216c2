"""How long a rank waits for the others in DistributedDataParallel's reduction of gradients.

A backward pass computes this rank's gradients and then waits until those of all ranks are averaged. So the pass is
divided where its last gradient is there: what came before is the rank's own work, the rest is waiting. The slowest rank
waits least.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import torch

from gradvane import _finding
from gradvane._watch.events import contained

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.optim import Optimizer

    from gradvane._naming import Budget
    from gradvane._ranks.reduction import BeforeReduction


class _Pass(threading.local):
    """The backward pass that a thread is in."""

    def __init__(self) -> None:
        self.hooks: list[Any] = []
        """at its roots"""
        self.is_queued = False
        self.computed: float | None = None
        """when its last gradient was there"""


class Reductions:
    """Of one agent. Called by the threads that train."""

    def __init__(self, native: Any, budget: Budget, say: Callable[[str], None]) -> None:
        self._native, self._budget, self._say = native, budget, say
        self._looked_for: set[int] = set()
        """optimizers, by number"""
        self._before: BeforeReduction | None = None
        self._has_found = False
        """a model is there whose passes wait for other ranks on the host"""
        self._here = _Pass()
        self.faults = 0

    @contained
    def before_step(self, index: int, optimizer: Optimizer) -> None:
        """Looks for the models that reduce this optimizer's gradients: once, in its first step. A program's own
        communication hook comes before that, and there can be only one."""
        if index in self._looked_for or not _has_other_ranks():
            return
        is_asked_for = self._native.checks_before_reduction()
        if not is_asked_for and not self._budget.is_left():
            return  # a later step may have time for it
        self._looked_for.add(index)
        if not is_asked_for and not any(param.is_cpu for param in _finding.parameters_of(optimizer)):
            return
        from gradvane._ranks import reduction  # which needs torch.distributed

        with self._budget:
            models = reduction.models_of(optimizer)
        self._has_found = self._has_found or any(reduction.waits_on_host(model) for model in models)
        if models and is_asked_for:
            if self._before is None:
                self._before = reduction.BeforeReduction(self._native, self._say)
            self._before.watch(models)

    @contained
    def pass_begins(self, tensors: Any) -> None:
        if not self._has_found or _is_compiled_autograd():
            return
        roots = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        self._here.computed, self._here.is_queued = None, False
        self._here.hooks = [root.register_hook(self._begun) for root in roots
                            if isinstance(root, torch.Tensor) and root.is_cpu and root.grad_fn is not None]

    def _begun(self, _: Tensor) -> None:
        """What is queued now is called before what the reducer queues, which is the waiting."""
        if self._here.is_queued:
            return
        self._here.is_queued = True
        try:
            torch.autograd.Variable._execution_engine.queue_callback(self._computed)
        except Exception:  # training goes on
            self.faults += 1

    def _computed(self) -> None:
        self._here.computed = time.perf_counter()

    @contained
    def pass_ended(self, has_ended: bool) -> None:
        if not self._here.hooks:
            return
        while self._here.hooks:
            self._here.hooks.pop().remove()
        computed, self._here.computed = self._here.computed, None
        if has_ended and computed is not None:
            self._native.note_rank_wait(time.perf_counter() - computed)


def _has_other_ranks() -> bool:
    dist: Any = sys.modules.get("torch.distributed")
    return dist is not None and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _is_compiled_autograd() -> bool:
    """It traces hooks into its graph, where ours must not be."""
    compiled: Any = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(compiled, "compiled_autograd_enabled", False))
