"""Gradient scalers, learning rate schedulers and the user's own objects: what belongs to a training's state next to its
models and optimizers."""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gradvane import _finding
from gradvane._process.unwarned import Unwarned

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

    from gradvane._governor.trees import Capture, Node, Restoring

_SCALER = ("_scale", "_growth_tracker", "_init_scale", "_init_growth_tracker", "_growth_factor", "_backoff_factor",
           "_growth_interval")
_METHODS = ("step", "state_dict", "load_state_dict")


@dataclass(frozen=True)
class ScalerPart:
    scaler: weakref.ref[Any]
    values: dict[str, Node]


@dataclass(frozen=True)
class SchedulerPart:
    scheduler: weakref.ref[Any]
    state: Node


@dataclass(frozen=True)
class UserPart:
    name: str
    value: Node
    load: Callable[[Any], object]


class Found:
    """Scalers and schedulers that live, found among the garbage collector's objects: 50 ms in a large process."""

    def __init__(self) -> None:
        self._scalers: list[weakref.ref[Any]] = []
        self._schedulers: list[weakref.ref[Any]] = []

    def look(self, optimizers: list[Optimizer]) -> None:
        ours = {id(optimizer) for optimizer in optimizers}
        kinds: dict[type, int] = {}
        self._scalers, self._schedulers = [], []
        for thing in _finding.instances(object):
            kind = type(thing)
            if kind not in kinds:
                kinds[kind] = _kind_of(kind)
            if kinds[kind] == 1:
                self._scalers.append(weakref.ref(thing))
            elif kinds[kind] == 2 and id(_attributes(thing).get("optimizer")) in ours:
                self._schedulers.append(weakref.ref(thing))

    def take(self, capture: Capture) -> tuple[list[ScalerPart], list[SchedulerPart]]:
        scalers = []
        for i, scaler in enumerate(_living(self._scalers)):
            if getattr(scaler, "_enabled", False):
                values = {key: capture.tree(getattr(scaler, key, None), f"scaler {i}.{key}") for key in _SCALER}
                scalers.append(ScalerPart(weakref.ref(scaler), values))
        schedulers = []
        for i, scheduler in enumerate(_living(self._schedulers)):
            with Unwarned():
                state = scheduler.state_dict()
            schedulers.append(SchedulerPart(weakref.ref(scheduler), capture.tree(state, f"scheduler {i}")))
        return scalers, schedulers


def plan_scaler(part: ScalerPart, restoring: Restoring) -> None:
    """One that is gone by now is left out."""
    scaler = part.scaler()
    if scaler is None:
        return
    for key, node in part.values.items():
        value = restoring.planned(node, getattr(scaler, key, None))
        restoring.later(functools.partial(setattr, scaler, key, value))


def plan_scheduler(part: SchedulerPart, restoring: Restoring) -> None:
    scheduler = part.scheduler()
    if scheduler is None:
        return
    state = restoring.planned(part.state, None)

    def load() -> None:
        with Unwarned():
            scheduler.load_state_dict(state)

    restoring.load_after(type(scheduler).__name__, load)


def take_user(name: str, save: Callable[[], Any], load: Callable[[Any], object], capture: Capture) -> UserPart:
    return UserPart(name, capture.tree(save(), name), load)


def _living(references: list[weakref.ref[Any]]) -> list[Any]:
    return [thing for reference in references if (thing := reference()) is not None]


def _attributes(thing: Any) -> dict[str, Any]:
    """Without running code of the object's own."""
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def _kind_of(kind: type) -> int:
    """1: a gradient scaler; 2: what may be a scheduler; 0: neither. A wrapper of an optimizer has the same methods."""
    if issubclass(kind, torch.amp.GradScaler):
        return 1
    if issubclass(kind, (torch.optim.Optimizer, torch.nn.Module)):
        return 0
    members = {name for base in kind.__mro__ for name in vars(base)}
    return 2 if members.issuperset(_METHODS) and "param_groups" not in members and "__weakref__" in members else 0
