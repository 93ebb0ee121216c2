"""Carries out what the native governor decides: a step is left out, the training goes back, or it stops."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from gradvane._errors import GradvaneError, TrainingStopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CellType, FrameType

    from torch import Tensor
    from torch.optim import Optimizer

    from gradvane._records import Incident
    from gradvane._watch.running import InThread

TAKE, SKIP, ROLLBACK, STOP = range(4)
"""The native governor's verdicts. All but TAKE leave the step in hand out."""


class Governing:
    """Of one agent. Called by the threads that train."""

    def __init__(self, native: Any, here: InThread) -> None:
        self._native = native
        self._here = here
        self.acts = bool(native.acts())
        """False: every step is taken, and nothing here costs anything"""
        self._judges_gradients = bool(native.acts_on_nonfinite())
        self.raises = True
        """at a stop. False: an integration asks should_stop() and ends its loop itself"""
        self.roll_back: Callable[[Optimizer | None, str], bool] | None = None
        """Goes back to a snapshot, given the optimizer whose step was left out, and why; False where it cannot. None:
        there are no snapshots."""
        self.find_incident: Callable[[], Incident | None] = lambda: None
        """the one that a stop rests on"""
        if self.acts:
            check_torch()

    def why_not(self, optimizer: Optimizer) -> str:
        """Why no policy can act on the steps of `optimizer`; empty where it can."""
        if not self._judges_gradients:
            return ""
        for group in optimizer.param_groups:
            for param in group["params"]:
                if hasattr(param, "to_local") and not self._native.agrees():
                    return (
                        "on_nonfinite: each rank sees its own shards alone; set ranks to agree, or on_nonfinite to watch"
                    )
                if not param.is_cpu and not param.is_cuda:
                    return (
                        f"on_nonfinite: a step is judged before the update only where parameters are on a CPU or a CUDA"
                        f" device, and these are on {param.device}; set on_nonfinite to watch"
                    )
        return ""

    def evaluates_first(self, optimizer: Optimizer) -> bool:
        """Whether the closure that its step was given is evaluated before the step, for the sake of a policy. The step
        has to begin with that anyway, as those of torch's own optimizers do. Not where other hooks are to come before it:
        they may depend on that, or it on them."""
        if not self.acts or self._here.running:
            return False
        return _is_torchs(type(optimizer).step) and not _has_other_pre_hooks(optimizer)

    def begins_late(self, optimizer: Optimizer, frame: FrameType) -> bool:
        """Whether other hooks are to come before the step, and may change its gradients: it begins, for us, when they have
        run. `frame`: as for cell_in()."""
        return not self._here.running and _has_other_pre_hooks(optimizer) and cell_in(optimizer, frame) is not None

    def carry_out(self, verdict: int, optimizer: Optimizer | None) -> None:
        """After a step was left out. Raises TrainingStopped for a stop, once for each such step."""
        reason = str(self._native.governor_reason())
        if verdict == ROLLBACK:
            if self.roll_back is not None and self.roll_back(optimizer, reason):
                return
            self._native.stop_instead()
            reason = str(self._native.governor_reason())
        elif verdict != STOP:
            return
        if not self.raises:
            return
        incident = self.find_incident()
        last_good = self._native.governor().last_good_step
        self._native.resume()  # what happens now is the caller's decision
        raise TrainingStopped(reason, incident=incident, last_good_step=last_good or None)


def check_torch() -> None:
    """Raises GradvaneError where torch's wrapper around an optimizer's step() is not the one that we know."""
    code = _wrapper_code()
    if code is None or "func" not in code.co_freevars:
        raise GradvaneError(f"policies cannot act beside torch {torch.__version__}; set on_nonfinite to watch")


def step_cell(optimizer: Optimizer) -> CellType | None:
    """Where torch's wrapper around the optimizer's step() keeps the function itself; None: it is not wrapped."""
    return next(_step_cells(optimizer), None)


def cell_in(optimizer: Optimizer, frame: FrameType) -> CellType | None:
    """The same of the wrapper whose frame this is, which calls hooks and then the function: it may be around a base class's
    step(). None: it is another frame."""
    if frame.f_code is not _wrapper_code():
        return None
    function = frame.f_locals.get("func")
    return next((cell for cell in _step_cells(optimizer) if cell.cell_contents is function), None)


def _step_cells(optimizer: Optimizer) -> Iterator[CellType]:
    for kind in type(optimizer).__mro__:
        if (wrapper := _wrapper_of(vars(kind).get("step"))) is not None:
            yield wrapper.__closure__[wrapper.__code__.co_freevars.index("func")]


def gate(original: Callable[..., Any], instead: dict[int, Callable[..., Any]]) -> Callable[..., Any]:
    """Around the function: what `instead` has for an optimizer's id is taken out and called in its place, with the function
    and its arguments."""

    def step(*args: Any, **kwargs: Any) -> Any:
        call = instead.pop(id(args[0]), None) if instead else None
        return original(*args, **kwargs) if call is None else call(original, *args, **kwargs)

    return step


def leaving_out(result: Tensor | float | None) -> Callable[..., Any]:
    """For gate(): the step is not taken, and returns this."""
    return lambda *_args, **_kwargs: result


def replayed(closure: Callable[..., Any], loss: Any) -> Callable[..., Any]:
    """The closure, whose first evaluation has been made already and gave `loss`."""
    is_first = True

    def evaluate(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            return loss
        return closure(*args, **kwargs)

    return evaluate


def _wrapper_code() -> Any:
    make = getattr(torch.optim.Optimizer, "profile_hook_step", None)
    return None if make is None else make(lambda: None).__code__


def _wrapper_of(function: Any) -> Any:
    """torch's wrapper, which may be inside what another tool has put around it."""
    code = _wrapper_code()
    while function is not None and getattr(function, "__code__", None) is not code:
        function = getattr(function, "__wrapped__", None)
    return function


def _has_other_pre_hooks(optimizer: Optimizer) -> bool:
    of_all = getattr(sys.modules[torch.optim.Optimizer.__module__], "_global_optimizer_pre_hooks", ())
    return len(of_all) > 1 or bool(getattr(optimizer, "_optimizer_step_pre_hooks", None))


def _is_torchs(function: Any) -> bool:
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        function = inner
    return str(getattr(function, "__module__", "")).startswith("torch.optim.")
