"""What a rank's own gradients are, before DistributedDataParallel averages them: a NaN is on all ranks behind it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gradvane import _finding

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer


def models_of(optimizer: Optimizer) -> list[DistributedDataParallel]:
    """Those that reduce gradients of this optimizer's. A look through all objects."""
    wanted = {id(param) for param in _finding.parameters_of(optimizer)}
    models = cast("list[DistributedDataParallel]", _finding.instances(DistributedDataParallel))
    return [model for model in models if any(id(param) in wanted for param in model.parameters())]


def waits_on_host(model: DistributedDataParallel) -> bool:
    """Gradients on devices are reduced by the device, and the host waits for nothing."""
    return all(param.is_cpu for param in model.parameters())


class BeforeReduction:
    """Belongs to the thread that trains; the hook is called by the threads of its backward passes."""

    def __init__(self, native: Any, say: Callable[[str], None]) -> None:
        self._native, self._say = native, say

    def watch(self, models: list[DistributedDataParallel]) -> None:
        """From their next backward pass on."""
        for model in models:
            self._hook_into(model)

    def _hook_into(self, model: DistributedDataParallel) -> None:
        if not waits_on_host(model):
            self._say("check_before_reduction is for parameters on a CPU: the rank that a bad gradient comes from is not known")
            return
        if model._join_config.enable and not model._divide_by_initial_world_size:
            return
        try:
            model.register_comm_hook((self, model.process_group), _averaged)
        except RuntimeError:  # it has one
            self._say("check_before_reduction: the model has a communication hook of the program's, and there can be only one: "
                      "the rank that a bad gradient comes from is not known")

    def look_at(self, bucket: dist.GradBucket) -> None:
        # One pass without memory. A sum may overflow, so what it says is looked at again.
        if torch.isfinite(bucket.buffer().sum()):
            return
        for param, gradient in zip(bucket.parameters(), bucket.gradients()):
            bad = torch.isfinite(gradient).logical_not_().flatten()
            if bad.any():
                self._native.note_own_gradient(param, int(bad.byte().argmax()))


def _averaged(state, bucket):  # type: ignore[no-untyped-def]  # torch compares annotations with its own, not as text
    """As DistributedDataParallel averages without a hook, to the bit, and looks before it does."""
    look, group = state
    with contextlib.suppress(Exception):  # the other ranks wait for the reduction
        look.look_at(bucket)
    gradients = bucket.buffer().mul_(1.0 / group.size())
    reduced = dist.all_reduce(gradients, group=group, async_op=True).get_future()
    return reduced.then(lambda done: done.value()[0])
