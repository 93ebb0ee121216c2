#!/usr/bin/env python3
"""Says which test cases of a run of CTest were skipped, and why: CTest counts a program as passed if its cases are.

    scripts/skipped.py build/release/Testing/Temporary/LastTest.log
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable

PROGRAM = re.compile(r"^\d+/\d+ Testing: (\S+)$")
OF_PYTEST = re.compile(r"^SKIPPED \[(\d+)\] (?:\S+:(?:\d+:)? )?(.*)$")
REASON_FOLLOWS = re.compile(r"^\S+: Skipped$")
OF_GTEST = re.compile(r"^\[  SKIPPED \] .+ \(\d+ ms\)$")  # the list at the end has no times


def skipped(lines: Iterable[str]) -> Counter[tuple[str, str]]:
    """Cases by program and reason."""
    found: Counter[tuple[str, str]] = Counter()
    program, reason, is_reason = "?", "", False
    for line in map(str.rstrip, lines):
        if match := PROGRAM.match(line):
            program = match[1]
        elif match := OF_PYTEST.match(line):
            found[program, match[2]] += int(match[1])
        elif OF_GTEST.match(line):
            found[program, reason or "no reason given"] += 1
            reason = ""
        elif is_reason:
            reason = line
        is_reason = bool(REASON_FOLLOWS.match(line))
    return found


def main() -> None:
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        found = skipped(log)
    print(f"Skipped cases: {found.total()}" + (", which say nothing about what they test:" if found else ""))
    for (program, reason), count in sorted(found.items()):
        print(f"  {count} of {program}: {reason}")


if __name__ == "__main__":
    main()
