"""Where the process is observed: optimizer steps, backward passes, clipping, gradient scalers.

Everything here hands over to the one live agent, or does nothing. Inside torch.compile nothing is observed:
no graph breaks because of us. install() and uninstall() leave other people's hooks and patches alone.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import clip_grad
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradvane._watcher import Watcher

_current: Watcher | None = None
_undo: list[Callable[[], object]] = []
_profilers: weakref.WeakSet[Any] = weakref.WeakSet()
"""those of PyTorch's that are running; one that is dropped before its end is none any more"""


def current() -> Watcher | None:
    return _current


def install(watcher: Watcher) -> None:
    global _current
    is_new, _current = watcher is not _current, watcher
    if is_new:
        for _ in range(len(_profilers)):  # begun when there was nobody to be told
            watcher.profiler_begins()
    if _undo:
        return
    _undo.append(register_optimizer_step_pre_hook(_before_step).remove)
    _undo.append(register_optimizer_step_post_hook(_after_step).remove)
    _replace(torch.autograd, "backward", _backward)
    _replace(torch.autograd.profiler.profile, "_prepare_trace", _prepare_trace)
    _replace(torch.autograd.profiler.profile, "__exit__", _profiler_exit)
    _replace(torch.amp.GradScaler, "scale", _scale)
    _replace(torch.amp.GradScaler, "step", _scaler_step)
    for name, observe in (
        ("clip_grad_norm_", _clip_norm),
        ("clip_grad_value_", _clip_value),
        ("_get_total_norm", _total_norm),
        ("_clip_grads_with_norm_", _clip_with_norm),
    ):
        _replace_inside(getattr(clip_grad, name, None), observe)


def uninstall(watcher: Watcher) -> None:
    global _current
    if _current is not watcher:
        return
    _current = None
    while _undo:
        _undo.pop()()
    _profilers.clear()  # nobody sees their end now


def forget_in_child() -> None:
    """In a forked child: nobody is there to be told."""
    global _current
    _current = None


def _watching() -> Watcher | None:
    return None if torch.compiler.is_compiling() else _current


def _replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    ours = functools.wraps(original)(make(original))
    setattr(owner, name, ours)

    def undo() -> None:
        if getattr(owner, name) is ours:
            setattr(owner, name, original)

    _undo.append(undo)


def _replace_inside(function: Any, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Puts ours into the no_grad wrapper that torch has around `function`: so it is seen too by a script
    that imported the function by its name before we came."""
    cells = getattr(function, "__closure__", None) or ()
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, cells):
        if name != "func":
            continue
        original = cell.cell_contents
        ours = functools.wraps(original)(make(original))
        cell.cell_contents = ours

        def undo() -> None:
            if cell.cell_contents is ours:
                cell.cell_contents = original

        _undo.append(undo)
        return


def _before_step(
    optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    watcher = _watching()
    if watcher is None:
        return None
    closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
    if not callable(closure):
        watcher.before_step(optimizer, False)
        return None
    watcher.before_step(optimizer, True)

    @functools.wraps(closure)
    def evaluated(*inputs: Any, **named: Any) -> Any:
        loss = closure(*inputs, **named)
        watcher.evaluated(optimizer)
        return loss

    if "closure" in kwargs:
        return args, {**kwargs, "closure": evaluated}
    return (args[0], evaluated, *args[2:]), kwargs


def _after_step(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    watcher = _watching()
    if watcher is not None:
        watcher.after_step(optimizer)


def _backward(original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(*args: Any, **kwargs: Any) -> Any:
        watcher = _watching()
        if watcher is None:
            return original(*args, **kwargs)
        tensors = args[0] if args else kwargs.get("tensors")
        is_outermost = watcher.before_backward(tensors)
        has_ended = False
        try:
            result = original(*args, **kwargs)
            has_ended = True
        finally:
            if is_outermost:
                watcher.after_backward(tensors, has_ended)
        return result

    return backward


def _prepare_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    def prepare_trace(self: Any, *args: Any, **kwargs: Any) -> Any:
        watcher = _watching()
        if watcher is not None:
            watcher.profiler_begins()
        _profilers.add(self)
        return original(self, *args, **kwargs)

    return prepare_trace


def _profiler_exit(original: Callable[..., Any]) -> Callable[..., Any]:
    def exit_profiler(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            if self in _profilers:  # not where it is disabled
                _profilers.discard(self)
                watcher = _watching()
                if watcher is not None:
                    watcher.profiler_ended()

    return exit_profiler


def _scale(original: Callable[..., Any]) -> Callable[..., Any]:
    def scale(self: Any, outputs: Any) -> Any:
        result = original(self, outputs)
        watcher = _watching()
        if watcher is not None and self._enabled:
            watcher.scaled(self, outputs, result)
        return result

    return scale


def _scaler_step(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        watcher = _watching()
        if watcher is None or not self._enabled:
            return original(self, optimizer, *args, **kwargs)
        watcher.before_scaler_step(optimizer)
        result = original(self, optimizer, *args, **kwargs)
        watcher.after_scaler_step(optimizer)
        return result

    return step


def _clip_norm(original: Callable[..., Any]) -> Callable[..., Any]:
    def clip_grad_norm_(
        parameters: Any, max_norm: float, norm_type: float = 2.0, *args: Any, **kwargs: Any
    ) -> Any:
        watcher = _watching()
        if watcher is None:
            return original(parameters, max_norm, norm_type, *args, **kwargs)
        parameters, given = _listed(parameters)
        with watcher.clipping(given, max_norm if float(norm_type) == 2.0 else None):
            return original(parameters, max_norm, norm_type, *args, **kwargs)

    return clip_grad_norm_


def _clip_value(original: Callable[..., Any]) -> Callable[..., Any]:
    def clip_grad_value_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        watcher = _watching()
        if watcher is None:
            return original(parameters, *args, **kwargs)
        parameters, given = _listed(parameters)
        with watcher.clipping(given, None):
            return original(parameters, *args, **kwargs)

    return clip_grad_value_


def _clip_with_norm(original: Callable[..., Any]) -> Callable[..., Any]:
    def clip_grads_with_norm_(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Any:
        watcher = _watching()
        if watcher is None:
            return original(parameters, max_norm, *args, **kwargs)
        parameters, given = _listed(parameters)
        with watcher.clipping(given, max_norm):
            return original(parameters, max_norm, *args, **kwargs)

    return clip_grads_with_norm_


def _total_norm(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_total_norm(*args: Any, **kwargs: Any) -> Any:
        watcher = _watching()
        if watcher is not None:
            watcher.before_total_norm()
        return original(*args, **kwargs)

    return get_total_norm


def _listed(parameters: Any) -> tuple[Any, list[Any]]:
    """What to hand on, and its items: a generator can be gone through only once, and torch warns of an
    empty one."""
    if isinstance(parameters, torch.Tensor):
        return parameters, [parameters]
    items = list(parameters)
    is_exhausted = not items and not isinstance(parameters, (list, tuple))
    return (parameters if is_exhausted else items), items
