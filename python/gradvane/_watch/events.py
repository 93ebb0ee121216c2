"""What every event of training has in common here: it must not fail, and a backward pass begins at a loss."""

from __future__ import annotations

import functools
import logging
import signal
import types
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from gradvane._torch_ops import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

logger = logging.getLogger("gradvane")
_Method = TypeVar("_Method", bound="Callable[..., Any]")


def contained(method: _Method) -> _Method:
    """A method of something with `faults`: what it raises is counted, said once, and leaves training alone."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            if _is_of_a_signal(error):  # which came in here by chance, and is for the program
                raise
            self.faults += 1
            if self.faults == 1:
                logger.warning("a hook failed; training goes on, this step may be missing", exc_info=True)
            return None

    return call  # type: ignore[return-value]


def _is_of_a_signal(error: BaseException) -> bool:
    """A handler of signals has raised it: they run wherever the main thread is."""
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> types.CodeType | None:
    if not callable(handler):  # as SIG_DFL
        return None
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = getattr(type(handler), "__call__", None)
    return getattr(function, "__code__", None)


def loss_root(tensors: Any) -> Tensor | None:
    """The loss that a backward pass begins at, if that is one number; the sum where it begins at several."""
    if isinstance(tensors, torch.Tensor):
        return tensors if _is_one_number(tensors) else None
    if not isinstance(tensors, (list, tuple)):  # an iterator would be empty for the backward pass
        return None
    roots = list(tensors)
    if not roots or not all(isinstance(root, torch.Tensor) and _is_one_number(root) for root in roots):
        return None
    if len(roots) == 1:
        return roots[0]
    with undisturbed():
        return sum(root.detach().reshape(()) for root in roots)  # type: ignore[return-value]


def _is_one_number(tensor: Tensor) -> bool:
    with torch._C.DisableTorchFunction():  # a program's overrides see its own calls alone
        return bool(tensor.numel() == 1)
