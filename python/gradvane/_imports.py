"""Calls back when a module has been imported, and changes nothing that a program would find.

While something is waited for, PathFinder.find_spec is a function of ours: the finders on sys.meta_path stay those
that they are, in their order. The loader of the module that is waited for gets an exec_module of its own until it
runs. Other tools may wrap either before us or after us: what they put there stays, and calls us or is called by us.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import types
    from collections.abc import Callable

_NOTHING = object()
_waiting: dict[str, Callable[[], object]] = {}
_theirs: Any = None
_ours: Any = None


def when_imported(name: str, then: Callable[[], object]) -> None:
    """Calls `then`, which must not raise, once the module has been imported; at once where that was before."""
    global _theirs, _ours
    if _is_imported(name):
        then()
        return
    _waiting[name] = then
    if _ours is None:
        _theirs, _ours = vars(PathFinder)["find_spec"], classmethod(_find_spec)
        PathFinder.find_spec = _ours  # type: ignore[method-assign]


def stop_waiting_for(name: str) -> None:
    _waiting.pop(name, None)
    if not _waiting:
        stop_waiting()


def stop_waiting() -> None:
    """What has not been imported by now is not called back for."""
    global _ours
    _waiting.clear()
    if _ours is not None and vars(PathFinder).get("find_spec") is _ours:
        PathFinder.find_spec = _theirs  # type: ignore[method-assign]
        _ours = None


def imported(name: str) -> types.ModuleType | None:
    """The module, where it has been imported to its end."""
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


def _is_imported(name: str) -> bool:
    return imported(name) is not None


def _call_back(name: str) -> None:
    then = _waiting.pop(name, None)
    if then is not None:
        then()
    if not _waiting:
        stop_waiting()


def _find_spec(finder: Any, fullname: str, path: Any = None, target: Any = None) -> Any:
    for name in list(_waiting):
        if _is_imported(name):  # a finder that does not ask PathFinder brought it
            _call_back(name)
    spec = _theirs.__get__(None, finder)(fullname, path, target)
    if spec is not None and fullname in _waiting:
        _watch_loader(spec.loader, fullname)
    return spec


def _watch_loader(loader: Any, name: str) -> None:
    own = getattr(loader, "__dict__", {}).get("exec_module", _NOTHING)
    original = getattr(loader, "exec_module", None)
    if original is None:
        return

    def exec_module(module: types.ModuleType) -> None:
        # The loader is as it was before the module can look at it, unless another tool has wrapped ours.
        if loader.__dict__.get("exec_module") is exec_module:
            if own is _NOTHING:
                del loader.exec_module
            else:
                loader.exec_module = own
        original(module)
        _call_back(name)

    exec_module.__code__ = _unseen(exec_module.__code__)
    try:
        loader.exec_module = exec_module
    except (AttributeError, TypeError):  # of a kind that cannot be wrapped: the next import tells
        pass


def _unseen(code: types.CodeType) -> types.CodeType:
    """The same code as a part of the import system: python leaves that out of tracebacks, and does not blame it
    for warnings."""
    return code.replace(co_filename="<frozen importlib._bootstrap_external>")


_find_spec.__code__ = _unseen(_find_spec.__code__)
