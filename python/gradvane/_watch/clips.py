"""Around what clips gradients: they are read before, and what became of their norm is noted."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from gradvane._watch.events import contained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gradvane._watch.known import Known
    from gradvane._watch.running import InThread
    from gradvane._watch.watcher import Watcher

    Watching = Callable[[], Watcher | None]


class Clips:
    """Of one agent."""

    def __init__(self, native: Any, known: dict[int, Known], here: InThread, watcher: Watcher) -> None:
        self._native = native
        self._known = known
        self._here = here
        self._watcher = watcher
        self.faults = 0

    @contextlib.contextmanager
    def clipping(self, params: list[Any], max_norm: float | None) -> Iterator[None]:
        """Around a clip of `params`, to a total L2 norm or, with None, in some other way."""
        if self._here.clip_depth > 0:
            yield
            return
        self._here.clip_depth = 1
        try:
            clipped = self.before_clip(params)
            yield
            if clipped is not None:
                self._after_clip(clipped[0], clipped[1], max_norm)
        finally:
            self._here.clip_depth = 0

    def own_clip(self, params: list[Any]) -> tuple[int, bool] | None:
        """The optimizer whose gradients these are, and whether they were just read. None: torch has to clip."""
        clipped = self.before_clip(params)
        if clipped is None or not clipped[1] or self._native.is_sharded(clipped[0][0]):
            return None
        return clipped[0][0], clipped[2]

    @contained
    def before_total_norm(self, gradients: list[Any]) -> None:
        """Reads what a norm is taken of: not gradients of other optimizers, which other threads may train, unless none
        is known and no other thread trains."""
        if self._here.clip_depth > 0:
            return
        owners = self._native.owners_of_gradients(gradients)
        if not owners and self._watcher.trainers.others_train():
            return
        for known in list(self._known.values()):
            if not owners or known.index in owners:
                self._watcher.read(known.index, known.optimizer(), "clip")

    @contained
    def before_clip(self, params: list[Any]) -> tuple[list[int], bool, bool]:
        """Reads what is about to be clipped, with its scale. Whose the parameters are, whether they are all of
        one optimizer's, and whether this was the step's first read; None where that failed."""
        if not self._watcher.has_looked:
            self._watcher.look_around([])
        indices, is_whole = self._native.owners(params)
        just_read = False
        for known in list(self._known.values()):
            if known.index in indices:
                just_read = self._watcher.read(known.index, known.optimizer(), "clip")
        loop = self._watcher.loop
        if loop is not None and loop in indices:
            just_read = self._watcher.read(loop, None, "clip")
        return indices, is_whole, just_read

    @contained
    def _after_clip(self, indices: list[int], is_whole: bool, max_norm: float | None) -> None:
        self._native.note_clip(indices, float(max_norm) if is_whole and max_norm is not None else None)


def norm(original: Callable[..., Any], watching: Watching) -> Callable[..., Any]:
    def clip_grad_norm_(
        parameters: Any, max_norm: float, norm_type: float = 2.0, *args: Any, **kwargs: Any
    ) -> Any:
        watcher = watching()
        if watcher is None:
            return original(parameters, max_norm, norm_type, *args, **kwargs)
        parameters, given = _listed(parameters)
        with watcher.clipping(given, max_norm if float(norm_type) == 2.0 else None):
            return original(parameters, max_norm, norm_type, *args, **kwargs)

    return clip_grad_norm_


def value(original: Callable[..., Any], watching: Watching) -> Callable[..., Any]:
    def clip_grad_value_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        watcher = watching()
        if watcher is None:
            return original(parameters, *args, **kwargs)
        parameters, given = _listed(parameters)
        with watcher.clipping(given, None):
            return original(parameters, *args, **kwargs)

    return clip_grad_value_


def with_norm(original: Callable[..., Any], watching: Watching) -> Callable[..., Any]:
    def clip_grads_with_norm_(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Any:
        watcher = watching()
        if watcher is None:
            return original(parameters, max_norm, *args, **kwargs)
        parameters, given = _listed(parameters)
        with watcher.clipping(given, max_norm):
            return original(parameters, max_norm, *args, **kwargs)

    return clip_grads_with_norm_


def total_norm(original: Callable[..., Any], watching: Watching) -> Callable[..., Any]:
    def get_total_norm(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        watcher = watching()
        if watcher is None:
            return original(tensors, *args, **kwargs)
        tensors, given = _listed(tensors)
        watcher.before_total_norm(given)
        return original(tensors, *args, **kwargs)

    return get_total_norm


def _listed(parameters: Any) -> tuple[Any, list[Any]]:
    """What to hand on, and its items: a generator can be gone through only once, and torch warns of an
    empty one."""
    if isinstance(parameters, torch.Tensor):
        return parameters, [parameters]
    items = list(parameters)
    is_exhausted = not items and not isinstance(parameters, (list, tuple))
    return (parameters if is_exhausted else items), items
