"""The way back: what lives is compared with a snapshot first, and written only if all of it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch.utils.weak import TensorWeakRef

from gradvane._errors import GradvaneError
from gradvane._governor import attachments
from gradvane._governor.state import named_tensors
from gradvane._governor.trees import Restoring

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer

    from gradvane._governor.state import Captured, ModelPart, OptimizerPart, TrainingState

OptimizerPolicy = Literal["restore", "reset", "keep"]
POLICIES = get_args(OptimizerPolicy)
_RATES = ("lr", "initial_lr", "max_lr", "min_lr")
_MOST_NAMED = 3


class Mismatch(GradvaneError):
    """The training is no longer the one that the snapshot is of; nothing was changed."""


def plan(captured: Captured, state: TrainingState, optimizer: OptimizerPolicy) -> Restoring:
    """What to write, and into which tensors. Raises Mismatch, with the first differences."""
    restoring = Restoring(captured.layouts)
    problems: list[str] = []
    roots = state.roots()
    for part in captured.models:
        model = part.model()
        if model is None:
            problems.append(f"the model {part.kind} is gone")
        else:
            _plan_model(part, model, restoring, problems)
    known = {id(part.model()) for part in captured.models}
    problems += [f"the model {type(root).__name__} is new" for root in roots if id(root) not in known]
    _plan_optimizers(captured, state.optimizers(), optimizer, restoring, problems)
    if problems:
        more = f", and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
        raise Mismatch("the snapshot is of another state, so nothing was restored: "
                       + "; ".join(problems[:_MOST_NAMED]) + more)
    for scaler in captured.scalers:
        attachments.plan_scaler(scaler, restoring)
    if optimizer != "keep":
        for scheduler in captured.schedulers:
            attachments.plan_scheduler(scheduler, restoring)
    return restoring


def _plan_model(part: ModelPart, model: Module, restoring: Restoring, problems: list[str]) -> None:
    seen = set()
    for name, tensor, is_buffer, is_cache in named_tensors(model):
        seen.add(name)
        node = (part.buffers if is_buffer else part.parameters).get(name)
        why = "is new" if node is None else restoring.into(node, tensor)
        if why is not None and not is_cache:  # a cache that has grown is made again from what it is of
            problems.append(f"{'buffer' if is_buffer else 'parameter'} {name} {why}")
    gone = [name for name in (*part.parameters, *part.buffers) if name not in seen and name not in part.caches]
    problems += [f"{name} is gone" for name in gone]


def _plan_optimizers(captured: Captured, living: list[Optimizer], policy: OptimizerPolicy, restoring: Restoring,
                     problems: list[str]) -> None:
    known = {id(part.optimizer()) for part in captured.optimizers}
    problems += [f"the optimizer {type(one).__name__} is new" for one in living if id(one) not in known]
    for part in captured.optimizers:
        optimizer = part.optimizer()
        if optimizer is None:
            problems.append(f"the optimizer {part.kind} is gone")
        elif _plan_parameters(part, optimizer, restoring, problems) and policy != "keep":
            for node, group in zip(part.groups, optimizer.param_groups):
                _plan_group(node, group, restoring)
            if policy == "restore":
                _plan_state(part, optimizer, restoring)
            else:
                restoring.later(optimizer.state.clear)


def _plan_parameters(part: OptimizerPart, optimizer: Optimizer, restoring: Restoring, problems: list[str]) -> bool:
    """Those of the groups must be the very ones of the snapshot."""
    if len(part.parameters) != len(optimizer.param_groups):
        problems.append(f"{part.kind} has {len(optimizer.param_groups)} groups and had {len(part.parameters)}")
        return False
    for index, (before, group) in enumerate(zip(part.parameters, optimizer.param_groups)):
        now = list(group["params"])
        if len(before) != len(now) or any(reference() is not p for (reference, _), p in zip(before, now)):
            problems.append(f"group {index} of {part.kind} has other parameters")
            return False
        for i, ((_, node), parameter) in enumerate(zip(before, now)):
            if (why := restoring.into(node, parameter)) is not None:
                problems.append(f"parameter {i} in group {index} of {part.kind} {why}")
                return False
    return True


def _plan_group(node: Any, group: dict[str, Any], restoring: Restoring) -> None:
    values = [(key, restoring.planned(item, group.get(key))) for key, item in node.items]
    gone = [key for key in group if key != "params" and key not in dict(values)]

    def write() -> None:
        for key in gone:
            del group[key]
        group.update(values)

    restoring.later(write)


def _plan_state(part: OptimizerPart, optimizer: Optimizer, restoring: Restoring) -> None:
    """State that was made since goes away."""
    items = []
    for held, node in part.state:
        key = held() if isinstance(held, TensorWeakRef) else held
        if key is not None or not isinstance(held, TensorWeakRef):
            items.append((key, restoring.planned(node, optimizer.state.get(key))))

    def write() -> None:
        optimizer.state.clear()
        optimizer.state.update(items)

    restoring.later(write)


def back_off(captured: Captured, factor: float) -> None:
    """Multiplies the learning rates, and what schedulers make them from."""
    if factor == 1:
        return
    done: set[int] = set()
    for part in captured.optimizers:
        optimizer = part.optimizer()
        for group in [] if optimizer is None else optimizer.param_groups:
            for key in _RATES:
                if key in group:
                    group[key] = _scaled(group[key], factor, done)
    for scheduler_part in captured.schedulers:
        scheduler = scheduler_part.scheduler()
        for name in ("base_lrs", "_last_lr"):
            if isinstance(rates := getattr(scheduler, name, None), list):
                rates[:] = [_scaled(rate, factor, done) for rate in rates]


def _scaled(rate: Any, factor: float, done: set[int]) -> Any:
    if isinstance(rate, (int, float)):
        return rate * factor
    if isinstance(rate, torch.Tensor) and id(rate) not in done:
        done.add(id(rate))
        rate.mul_(factor)  # in place: a captured graph reads it
    return rate
