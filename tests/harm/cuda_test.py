"""The programs of the table that need a GPU. It runs without pytest, for machines that have none."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python" / "cuda")]

import four_ways
import rows_devices
import without_pytest
from comparison import differences
from program import Program, script


def check(program: Program) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outcomes = {way: four_ways.run(program, way, script((program,)), Path(folder) / f"way{number}")
                    for number, way in enumerate(program.ways)}
    assert outcomes["plain"].end == "exit status 0", outcomes["plain"].stderr
    found = {way: differences(program, way, outcomes["plain"], outcome) for way, outcome in outcomes.items()}
    assert not any(found.values()), found


if __name__ == "__main__":
    raise SystemExit(without_pytest.run(
        {f"test_{program.name}": lambda program=program: check(program) for program in rows_devices.PROGRAMS}))
