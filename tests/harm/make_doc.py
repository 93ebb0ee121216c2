"""Writes docs/harm.md from the table: python tests/harm/make_doc.py > docs/harm.md"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "warm")]

import table
from comparison import LEFT_BY_CUPTI, ON_PURPOSE
from program import FOUR_WAYS, Program

INTRODUCTION = """\
# Do no harm

Gradvane promises that it never harms the run it watches. The harm suite (`tests/harm/`, part of `make test`) holds it to
that: each program below runs plain, under `gradvane run`, with `gradvane.attach()`, and with `attach()` and then
`detach()` before the program does what it is here for. The four runs are compared:

- the exit status, or the signal that ended it, and that it ends at all in bounded time;
- standard output and standard error, line by line;
- the fates of its children, and the processes that it leaves behind;
- the files that it leaves, with their modes and contents;
- its weights and the states of its optimizers, bit by bit, and its random numbers;
- its environment, working folder, limits, umask, signal handlers and masks, descriptors and threads;
- `sys.meta_path`, import hooks, torch's loader, `sys.path`, `sys.argv`, `__main__`, excepthooks, warning filters, logging,
  trace functions, the garbage collector, torch's settings.

Each program must work when it runs plain, and Gradvane must have said a line when it was watched: else nothing is compared.
Most programs start from a process that has torch already, which they cannot tell from the interpreter (`tests/warm`). Of
these, the programs about endings run the destructors of torch's libraries; every program runs those of Gradvane's.

A stand-in that does harm on purpose, in {harms} ways, shows that the suite can fail (`negative_control_test.py`).

## What differs on purpose, in every program

| what | how |
|---|---|
{on_purpose}

After `detach()` the process has none of these any more but the lines and the run directory.

## The programs

{count} programs. "Equal" is what the tests demand of each way; the last column says what a program is excused from, and why.
"""


def document() -> str:
    programs = [program for _, group in table.GROUPS.values() for program in group]
    parts = [INTRODUCTION.format(
        harms=harms(), count=len(programs),
        on_purpose="\n".join(f"| {what} | {how} |" for what, how in ON_PURPOSE.items()))]
    for title, group in table.GROUPS.values():
        parts.append(f"\n### {title}\n\n| program | run in these ways | result | not compared |\n|---|---|---|---|\n")
        parts += [f"| {program.name} | {ways(program)} | {result(program)} | {excused(program)} |\n" for program in group]
    return "".join(parts)


def harms() -> int:
    from harmful.gradvane import HARMS

    return len(HARMS)


def ways(program: Program) -> str:
    return "all four" if program.ways == FOUR_WAYS else "; ".join(program.ways)


def result(program: Program) -> str:
    if program.needs == "cuda":
        return "equal, where there is a GPU"
    return f"equal, weights to {program.weights_within:g}" if program.weights_within else "equal"


def excused(program: Program) -> str:
    excuses = [f"{what}: {why}" for what, why in program.differs.items()]
    if program.counts_syncs:
        excuses.append(f"{LEFT_BY_CUPTI} descriptors of the device and {LEFT_BY_CUPTI} threads, which CUPTI keeps until the process "
                       "ends: torch's profiler leaves the same")
    if program.crash_is_usual:
        excuses.append(f"the end is nearly always torch's crash that says \"{program.crash_by_chance}\", and now and then a good one: "
                       "neither is held against a run")
    elif program.crash_by_chance:
        excuses.append(f"a run in which torch says \"{program.crash_by_chance}\": it is made again, five times at most")
    return "; ".join(excuses)


if __name__ == "__main__":
    sys.stdout.write(document())
