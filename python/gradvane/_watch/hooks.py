"""Where the process is observed: optimizer steps, backward passes, clipping, gradient scalers, data, checkpoints.

Everything here hands over to the one live agent, or does nothing. Inside torch.compile nothing is observed:
no graph breaks because of us. install() and uninstall() leave other people's hooks and patches alone.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import clip_grad
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gradvane import _imports
from gradvane._watch import clips, device_skips, governing, phases, profilers, scaler_checks
from gradvane._watch.events import contained

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradvane._watch.watcher import Watcher

    _Watching = Callable[[], Watcher | None]
    _Make = Callable[[Callable[..., Any], _Watching], Callable[..., Any]]

_current: Watcher | None = None
_handles: list[Any] = []
"""of the hooks that every optimizer calls"""
_patches: list[_Patch] = []
_here = threading.local()
_has_checkpoints = False
"""those of torch.distributed.checkpoint are among the patches"""
_instead: dict[int, Callable[..., Any]] = {}
"""what is called in the place of the step() that is under way, by the id of its optimizer; see governing.gate()"""
_left_inside: list[_Patch] = []
"""undone, and still inside what another tool has put around them"""


def current() -> Watcher | None:
    return _current


def install(watcher: Watcher) -> None:
    global _current
    previous, _current = _current, watcher
    if watcher is not previous:
        for name in profilers.running():
            watcher.profiler_begins(name)
            if previous is not None:  # after the new one, so that the subscription is not taken in between
                previous.profiler_ended()
    if _handles:
        return
    _take_out()
    _handles.append(register_optimizer_step_pre_hook(_before_step))
    _handles.append(register_optimizer_step_post_hook(_after_step))
    _replace(torch.autograd, "backward", _backward)
    _replace(torch.optim.Optimizer, "zero_grad", _clear("optimizer_clears"))
    _replace(torch.nn.Module, "zero_grad", _clear("module_clears"))
    _replace(torch.nn.Module, "train", _change_mode)
    _replace(torch.autograd.profiler.profile, "_prepare_trace", profilers.prepare_trace)
    _replace(torch.autograd.profiler.profile, "_start_trace", profilers.start_trace)
    _replace(torch.autograd.profiler.profile, "__exit__", profilers.exit_profiler)
    _replace_in([getattr(torch.utils.data.dataloader, "_BaseDataLoaderIter", None)], "__next__", phases.timed("data"))
    _replace_in([torch, torch.serialization], "save", phases.timed("checkpoint"))
    _watch_checkpoints(watcher)
    if torch.version.cuda is not None:  # without CUDA nobody counts
        profilers.when_proton_comes(_watch_proton)
    _replace(torch.amp.GradScaler, "scale", _scale)
    _replace(torch.amp.GradScaler, "step", _scaler_step)
    if hasattr(torch.amp.GradScaler, "_check_inf_per_device"):
        _replace(torch.amp.GradScaler, "_check_inf_per_device", scaler_checks.check)
    for name, observe in (
        ("clip_grad_norm_", clips.norm),
        ("clip_grad_value_", clips.value),
        ("_get_total_norm", clips.total_norm),
        ("_clip_grads_with_norm_", clips.with_norm),
    ):
        _replace_inside(name, observe)


def uninstall(watcher: Watcher) -> None:
    global _current, _has_checkpoints
    if _current is not watcher:
        return
    _current, _has_checkpoints = None, False
    while _handles:
        _handles.pop().remove()
    _left_inside.extend(reversed(_patches))
    _patches.clear()
    _instead.clear()
    _take_out()
    _imports.stop_waiting_for(profilers.LIBPROTON)
    profilers.forget()


def _watch_proton(functions: Any) -> None:
    if _handles:
        for name, make in profilers.PROTONS.items():
            _replace(functions, name, make)


@contained
def _watch_checkpoints(_: Watcher) -> None:
    """A program may import torch.distributed.checkpoint at any time: each step looks."""
    global _has_checkpoints
    if not _has_checkpoints and (modules := phases.checkpoint_modules()):
        _has_checkpoints = True
        for name in ("save", "async_save"):
            _replace_in(modules, name, phases.timed("checkpoint"))


def _take_out() -> None:
    """Another tool may have gone since, and left ours outermost."""
    _left_inside[:] = [patch for patch in _left_inside if not patch.undo()]


def forget_in_child() -> None:
    """In a forked child: nobody is there to be told."""
    global _current
    _current = None


def _watching() -> Watcher | None:
    return None if torch.compiler.is_compiling() else _current


class _Patch:
    """Ours around one function of torch's. When it is undone and another tool has wrapped ours meanwhile, ours stays
    inside theirs and does nothing but call what it is around, for good: the next install() makes another."""

    def __init__(self, get: Callable[[], Any], put: Callable[[Any], object], original: Any, make: _Make) -> None:
        self._get, self._put, self._theirs = get, put, get()
        self._is_undone = False
        self._ours = functools.wraps(original)(make(original, self._watching))
        put(self._ours)

    def _watching(self) -> Watcher | None:
        if torch.compiler.is_compiling():
            return None
        return None if self._is_undone else _current

    def undo(self) -> bool:
        """False where another tool's is around it: it may be gone at a later call."""
        self._is_undone = True
        if self._get() is not self._ours:
            return False
        self._put(self._theirs)
        return True


def _replace(owner: Any, name: str, make: _Make) -> None:
    # What stands in the class or module itself: another tool's may be a descriptor.
    _patches.append(
        _Patch(lambda: vars(owner).get(name), lambda it: setattr(owner, name, it), getattr(owner, name), make)
    )


def _replace_in(owners: list[Any], name: str, make: _Make) -> None:
    """As _replace() for a function that several modules have, in each that has the very one of the first. Where torch
    has no such function, nothing is replaced."""
    owners = [owner for owner in owners if name in getattr(owner, "__dict__", ())]
    if not owners:
        return

    def put(function: Any) -> None:
        before = vars(owners[0])[name]
        for owner in owners:
            if vars(owner).get(name) is before:
                setattr(owner, name, function)

    _patches.append(_Patch(lambda: vars(owners[0]).get(name), put, vars(owners[0])[name], make))


def _replace_inside(name: str, make: _Make) -> None:
    """Puts ours into the no_grad wrapper that torch has around a clip function: so it is seen too by a script that
    imported the function by its name before we came, and by another tool that has wrapped it."""
    wrapper = _torchs_own(getattr(clip_grad, name, None))
    if wrapper is None:
        return
    cell = wrapper.__closure__[wrapper.__code__.co_freevars.index("func")]
    _patches.append(
        _Patch(
            lambda: cell.cell_contents, lambda it: setattr(cell, "cell_contents", it), cell.cell_contents, make
        )
    )


def _torchs_own(function: Any, depth: int = 0) -> Any:
    """torch's wrapper, which may be within what another tool has put around it."""
    code = getattr(function, "__code__", None)
    if code is None or depth > 4:
        inner = getattr(function, "__wrapped__", None)
        return None if inner is None or depth > 4 else _torchs_own(inner, depth + 1)
    if getattr(function, "__globals__", None) is vars(clip_grad):
        return function if "func" in code.co_freevars else None
    inside = [function.__dict__.get("__wrapped__"), *(_content(cell) for cell in function.__closure__ or ())]
    found = (_torchs_own(one, depth + 1) for one in inside if callable(one))
    return next((one for one in found if one is not None), None)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return None


def _before_step(
    optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    watcher = _watching()
    _instead.pop(id(optimizer), None)  # another tool's hook has raised
    if watcher is None:
        return None
    closure = kwargs.get("closure")
    if closure is None and len(args) > 1:
        closure = args[1]
    frame = sys._getframe(1)
    if not callable(closure) or isinstance(closure, torch.nn.Module):
        if watcher.governing.begins_late(optimizer, frame):
            _call_instead(optimizer, _beginning_there(watcher), frame)
        elif (call := _begin_step(watcher, optimizer, None)) is not None:
            _call_instead(optimizer, call, frame)
        return None
    if not _is_plain(closure):
        watcher.before_step(optimizer, True)
        watcher.keeper.before_step()
        return None
    if watcher.governing.evaluates_first(optimizer):
        with torch.enable_grad():  # as torch's optimizers do
            loss = closure()
        if (call := _begin_step(watcher, optimizer, loss)) is not None:
            _call_instead(optimizer, call, frame)
        return _with_closure(governing.replayed(closure, loss), args, kwargs)
    watcher.before_step(optimizer, True)
    watcher.keeper.before_step()

    @functools.wraps(closure)
    def evaluated(*inputs: Any, **named: Any) -> Any:
        loss = closure(*inputs, **named)
        watcher.evaluated(optimizer)
        return loss

    return _with_closure(evaluated, args, kwargs)


def _is_plain(closure: Callable[..., Any]) -> bool:
    """Another one in its place is the same to the optimizer. It may ask others for what they are or count."""
    if isinstance(closure, types.FunctionType):
        return closure.__dict__.keys() <= {"__wrapped__"}  # that is of a decorator
    return isinstance(closure, (types.MethodType, functools.partial))


def _with_closure(
    closure: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if "closure" in kwargs:
        return args, {**kwargs, "closure": closure}
    return (args[0], closure, *args[2:]), kwargs


def _begin_step(watcher: Watcher, optimizer: torch.optim.Optimizer, result: Any) -> Callable[..., Any] | None:
    """What is called in the place of the function in step(), which returns `result`; None: nothing else."""
    call = None
    if watcher.before_step(optimizer, False):
        call = governing.leaving_out(result)
    elif (flag := watcher.device_skips.flag_for(optimizer)) is not None:
        call = device_skips.heeding(flag)
    watcher.keeper.before_step()
    return call


def _beginning_there(watcher: Watcher) -> Callable[..., Any]:
    """For governing.gate(): the step begins where the function is called, which is behind all hooks."""

    def step(original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        call = _begin_step(watcher, optimizer, None)
        return original(optimizer, *args, **kwargs) if call is None else call(original, optimizer, *args, **kwargs)

    return step


def _call_instead(optimizer: torch.optim.Optimizer, call: Callable[..., Any], frame: types.FrameType) -> None:
    """In the place of the step() that is under way. Nothing of an optimizer's class is touched before its first step that
    is left out, that a device decides about, or that other hooks come before."""
    _instead[id(optimizer)] = call
    cell = governing.cell_in(optimizer, frame) or governing.step_cell(optimizer)
    if cell is None or getattr(cell.cell_contents, "is_gradvanes", False):
        return

    def make(original: Callable[..., Any], _: _Watching) -> Callable[..., Any]:
        return governing.gate(original, _instead)

    patch = _Patch(lambda: cell.cell_contents, lambda it: setattr(cell, "cell_contents", it), cell.cell_contents, make)
    cell.cell_contents.is_gradvanes = True
    _patches.append(patch)


def _after_step(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _instead.pop(id(optimizer), None)
    watcher = _watching()
    if watcher is not None:
        verdict = watcher.after_step(optimizer)
        if not verdict or (verdict == governing.SKIP and watcher.keeper.is_asked):
            watcher.keeper.after_step(optimizer, watcher.is_busy())
            watcher.keeper.raise_if_broken()
        profilers.tell_gone(_watching)
        _watch_checkpoints(watcher)
        if verdict:
            watcher.governing.carry_out(verdict, optimizer)


def _backward(original: Callable[..., Any], watching: _Watching) -> Callable[..., Any]:
    def backward(*args: Any, **kwargs: Any) -> Any:
        watcher = watching()
        if watcher is None:
            return original(*args, **kwargs)
        tensors = args[0] if args else kwargs.get("tensors")
        is_outermost = has_ended = False
        try:  # an interrupt may come at any moment
            is_outermost = watcher.before_backward(tensors)
            watcher.keeper.backward_begins()
            result = original(*args, **kwargs)
            has_ended = True
        finally:
            if is_outermost:
                watcher.after_backward(tensors, has_ended)
                watcher.keeper.backward_ended(watcher.is_busy())
        watcher.keeper.raise_if_broken()
        return result

    return backward


def _clear(event: str) -> _Make:
    """`event`: the Watcher's method that is told of it."""

    def make(original: Callable[..., Any], watching: _Watching) -> Callable[..., Any]:
        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
            watcher = watching()
            if watcher is not None:
                getattr(watcher, event)(self)
            return original(self, *args, **kwargs)

        return zero_grad

    return make


def _change_mode(original: Callable[..., Any], watching: _Watching) -> Callable[..., Any]:
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        watcher = watching()
        if watcher is None or getattr(_here, "changes_mode", False):  # of a part of a module
            return original(self, *args, **kwargs)
        _here.changes_mode = True
        try:
            result = original(self, *args, **kwargs)
        finally:
            _here.changes_mode = False
        watcher.mode_changes(self)
        return result

    return train


def _scale(original: Callable[..., Any], watching: _Watching) -> Callable[..., Any]:
    def scale(self: Any, outputs: Any) -> Any:
        result = original(self, outputs)
        watcher = watching()
        if watcher is not None and self._enabled:
            watcher.scaled(self, outputs, result)
        return result

    return scale


def _scaler_step(original: Callable[..., Any], watching: _Watching) -> Callable[..., Any]:
    def step(self: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        watcher = watching()
        if watcher is None or not self._enabled:
            return original(self, optimizer, *args, **kwargs)
        has_ended = False
        try:  # an interrupt may come at any moment
            watcher.before_scaler_step(self, optimizer)
            result = original(self, optimizer, *args, **kwargs)
            has_ended = True
        finally:
            verdict = watcher.after_scaler_step(optimizer, has_ended)
        if verdict:
            watcher.governing.carry_out(verdict, optimizer)
        return result

    return step
