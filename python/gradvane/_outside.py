"""What a program does between its training steps."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from gradvane import _agent

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def outside_steps() -> Iterator[None]:
    """What is waited for inside belongs to no step: sampling from the model, for example.

        with gradvane.outside_steps():
            print(generate(model, prompt))

    Host syncs stay in the totals, apart, and spend no budget. The run does not count as stalled meanwhile, for at most
    `stall_pause_seconds`. All threads of the process; it may be nested. Without an agent it does nothing.
    phase("evaluation") and phase("checkpoint") do the same and book the time.
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
