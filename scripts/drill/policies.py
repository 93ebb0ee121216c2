"""Breaks trainings that have a policy, and compares where they end with the same training unbroken."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRAINING = Path(__file__).with_name("policy_training.py")
WENT_BACK = ": the training went back to the state after step "
STEPS = 300
SECONDS = 300


@dataclass(frozen=True)
class Case:
    language: str
    """python, or c++: char_gpt"""
    policy: str
    fault: str
    """none, gradient or state"""
    is_ruined: bool = False
    within: float = 0.0
    """share by which the held-out loss may be above that of the training without a fault"""
    skipped: int = 0
    rollbacks: int = 0

    @property
    def name(self) -> str:
        return f"{self.language}, {self.policy}, {'no fault' if self.fault == 'none' else 'NaN in the ' + self.fault}"


def cases_of(language: str) -> tuple[Case, ...]:
    """The first is what the others are compared with."""
    return (Case(language, "watch", "none"),
            Case(language, "watch", "gradient", is_ruined=True),
            Case(language, "skip", "gradient", within=0.02, skipped=STEPS // 50),
            Case(language, "watch", "state", is_ruined=True),
            # The step with the bad loss is left out, and nine steps before it are lost at most.
            Case(language, "rollback", "state", within=0.05, skipped=1, rollbacks=1))


@dataclass
class Result:
    case: Case
    loss: float
    skipped: int
    rollbacks: int
    told: int
    """times that the log told of a rollback"""
    clean: float
    """held-out loss of the first case"""

    def faults(self) -> list[str]:
        case = self.case
        wrong = []
        if case.is_ruined != (not math.isfinite(self.loss)):
            wrong.append(f"its held-out loss is {self.loss}")
        elif not case.is_ruined and self.loss > self.clean * (1 + case.within):
            wrong.append(f"{self.loss / self.clean - 1:.1%} above the clean run, more than {case.within:.0%}")
        if self.skipped != case.skipped:
            wrong.append(f"{self.skipped} steps were skipped, not {case.skipped}")
        if self.rollbacks != case.rollbacks:
            wrong.append(f"{self.rollbacks} rollbacks, not {case.rollbacks}")
        if self.told != case.rollbacks:
            wrong.append(f"{self.told} rollbacks in the log, not {case.rollbacks}")
        return wrong


def run(languages: list[str], build: Path, folder: Path) -> list[Result]:
    results: list[Result] = []
    for language in languages:
        clean = math.nan
        for number, case in enumerate(cases_of(language)):
            found = end_of(case, build, folder / f"{language}-{number}.json")
            loss = float(found["held_out_loss"])
            clean = loss if number == 0 else clean
            results.append(Result(case, loss, found.get("skipped_steps", 0), found.get("rollbacks", 0),
                                  found["log"].count(WENT_BACK), clean))
    return results


def end_of(case: Case, build: Path, out: Path) -> dict[str, Any]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GRADVANE")}
    environment |= {"PYTHONPATH": str(build / "python"), "OMP_NUM_THREADS": "1", "GRADVANE_PORT": "-1",
                    "GRADVANE_RUN_DIR": str(out.with_suffix(""))}
    if case.language == "python":
        command = [sys.executable, "-B", str(TRAINING), case.policy, case.fault, str(out)]
    else:
        faults = {"none": [], "gradient": ["--fault=nan@50/50"], "state": ["--fault=nan@130,state"]}[case.fault]
        pace = ["--snapshot-every=10"] if case.policy == "rollback" else []
        command = [str(build / "bin" / "char_gpt"), "--size=tiny", f"--steps={STEPS}", "--threads=1", "--sample=0",
                   f"--on-nonfinite={case.policy}", f"--json={out}", *pace, *faults]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{case.name}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found | {"log": done.stdout + done.stderr}


def table(results: list[Result]) -> str:
    rows = [("training", "held-out loss", "to the clean run", "skipped", "rollbacks", "")]
    for result in results:
        is_finite = math.isfinite(result.loss)
        rows.append((result.case.name, f"{result.loss:.4f}", f"{result.loss / result.clean - 1:+.2%}" if is_finite else "",
                     str(result.skipped), str(result.rollbacks), "FAILED" if result.faults() else "ok"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join(lines + [f"{result.case.name}: {what}" for result in results for what in result.faults()])
