"""Children of multiprocessing: they leave by os._exit, which runs multiprocessing's own finalizers alone."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_process = 0
"""the child whose end is ours too"""


def is_child() -> bool:
    """Whether multiprocessing started this process."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def at_end_of_child(end: Callable[[], object]) -> None:
    """Sees to it that a child calls `end` when it ends, once. Nothing in other processes."""
    global _process
    if not is_child() or _process == os.getpid():
        return
    _process = os.getpid()
    from multiprocessing import util

    util.Finalize(None, end, exitpriority=-100)  # after those of the program
