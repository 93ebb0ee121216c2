"""The two lines that a run says on the standard error: where it is seen, and how it ended."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from gradvane._autostart import is_quiet
from gradvane._log import logger

if TYPE_CHECKING:
    from gradvane._agent import Agent



def begins(agent: Agent) -> None:
    """Where the page is. `gradvane run` and a script that shows log messages have said so already."""
    if agent.url and not logger.is_shown():
        why = "a run with the default name is live already; " if agent.is_renamed else ""
        page_of_all_ranks = agent.url.split("/rank/")[0]
        _say(agent, f"{agent.run}: {page_of_all_ranks} ({why}GRADVANE_QUIET=1 hides this line)")


def ended(agent: Agent) -> None:
    """After a good end: steps, incidents, and how to read what is left of them."""
    status = agent.status()
    if status.state != "finished":
        return
    steps, incidents = status.steps, agent._incidents.count
    parts = [f"{steps:,} step{'' if steps == 1 else 's'}",
             f"{incidents or 'no'} incident{'' if incidents == 1 else 's'}"]
    if agent.recording:
        parts.append(f"gradvane replay {agent.recording}")
    _say(agent, f"{agent.run} ended: {', '.join(parts)}")


def _say(agent: Agent, line: str) -> None:
    if is_quiet() or agent._native.local_rank() != 0:
        return
    if logger.is_shown():
        logger.info(line)
    elif sys.stderr is not None:
        with contextlib.suppress(Exception):  # closed, a pipe without a reader, or an object of the program's
            # One write: print() makes two where the stream is not buffered, and lines of several processes mix.
            sys.stderr.write(f"gradvane: {line}\n")
            sys.stderr.flush()
