"""All programs of the harm suite, by group: tests and docs/harm.md loop over this."""

from __future__ import annotations

import rows_children
import rows_devices
import rows_endings
import rows_files
import rows_signals
import rows_threads
import rows_tools
import rows_training
from program import Program

GROUPS: dict[str, tuple[str, list[Program]]] = {
    "children": ("Programs that have children", rows_children.PROGRAMS),
    "signals": ("Programs that get signals", rows_signals.PROGRAMS),
    "endings": ("How programs end", rows_endings.PROGRAMS),
    "files": ("Where files cannot be had", rows_files.PROGRAMS),
    "tools": ("Programs with other tools in them", rows_tools.PROGRAMS),
    "training": ("Trainings of many kinds", rows_training.PROGRAMS),
    "threads": ("Trainings in several threads", rows_threads.PROGRAMS),
    "devices": ("Trainings on a GPU", rows_devices.PROGRAMS),
}


def processes(group: str) -> dict[str, tuple[Program, ...]]:
    """The programs of a group that have a process of their own, by name, and those that share one."""
    found: dict[str, tuple[Program, ...]] = {}
    for program in GROUPS[group][1]:
        key = program.together or program.name
        found[key] = (*found.get(key, ()), program)
    return found
