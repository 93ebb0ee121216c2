"""What a program does between its training steps."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from gradvane import _agent

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def outside_steps() -> Iterator[None]:
    """What is waited for inside belongs to no step: a checkpoint, an evaluation that does not use `model.eval()`.

        with gradvane.outside_steps():
            torch.save(model.state_dict(), "last.pt")

    It stays in the totals, apart, and spends no budget. All threads of the process; it may be nested. Without an
    agent it does nothing.
    """
    agent = _agent.live()
    if agent is None:
        yield
        return
    agent._native.outside_steps(1)
    try:
        yield
    finally:
        agent._native.outside_steps(-1)
