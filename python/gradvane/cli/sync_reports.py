"""The reports that the processes of a program left, and what they say of a budget. Keys are those of
/api/v1/syncs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REASONS = {
    "counting": "nothing was in the way",
    "gated": "PyTorch's profiler leaves the one CUPTI subscription to Gradvane",
    "switched_off": "counting is switched off",
    "no_cuda": "this process has not loaded the CUDA driver",
    "no_cupti": "there is no libcupti to count them with",
    "no_driver": "libcupti finds no driver",
    "taken": "another tool has the one CUPTI subscription of this process",
    "refused": "the driver refuses it (confidential computing, a virtual GPU, WSL)",
    "yielded": "a profiler has the one CUPTI subscription until it is done",
    "lost": "CUPTI does not call Gradvane back any more",
    "proton": "Triton's Proton is loaded, and could not start if they were counted",
}
REJECTED = "rejected_in_capture"
MAY_WAIT = ("async_copy_blocked", "alloc_free", "module_load")
"""kinds that are known for waits by their time alone"""


@dataclass(frozen=True)
class Report:
    """What one process said last."""

    pid: int
    document: dict[str, Any]

    @property
    def name(self) -> str:
        rank = f", rank {self.document['rank']}" if self.document.get("rank") else ""
        return f"{self.document.get('run', '?')}{rank}, pid {self.pid}"

    @property
    def steps(self) -> int:
        return int(self.document["steps"])

    @property
    def has_counted(self) -> bool:
        """Only then is a total of 0 one that was counted."""
        return "totals" in self.document

    @property
    def used_cuda(self) -> bool:
        return self.has_counted or self.document["reason"] != "no_cuda"

    @property
    def is_counting(self) -> bool:
        return self.document["source"] in ("cupti", "shared")

    def why(self) -> str:
        """Why there are counts, or none, in words."""
        detail = self.document.get("detail")
        words = REASONS.get(self.document["reason"], self.document["reason"])
        return f"{words} ({detail})" if detail else words

    def in_steps(self) -> int:
        """Calls of the training that were in a step."""
        return int(self.document.get("parts", {}).get("in_steps", {}).get("calls", 0))

    @property
    def whole_steps(self) -> int:
        """Steps that were counted from end to end."""
        return int(self.document.get("whole_steps", 0))

    def waited(self, origin: str) -> tuple[int, float]:
        """Calls of that origin that made a thread wait, and for how many seconds."""
        kinds = self.document.get("totals", {}).get(origin, {})
        tallies = [tally for kind, tally in kinds.items() if kind != REJECTED]
        return sum(tally["calls"] for tally in tallies), sum(seconds(tally["seconds"]) for tally in tallies)


def nothing(why: str) -> dict[str, Any]:
    """What stands for a report where no process left one, so that a blank is not taken for a zero."""
    return {
        "source": "none", "reason": "no_report", "detail": why, "covered_seconds": 0, "blind_seconds": 0, "gaps": 0,
        "steps": 0, "whole_steps": 0, "own_budget": 0, "steps_over": {"training": 0, "gradvane": 0},
        "steps_uncounted": 0, "dropped": dict.fromkeys(("threads", "sites", "events", "unbalanced"), 0),
    }


def seconds(value: float | str) -> float:
    return float(value)  # "nan" and "inf" are words there


@dataclass(frozen=True)
class Found:
    """What the processes of a program left."""

    reports: list[Report]
    """first that of the one that waited longest"""
    silent: list[int]
    """processes whose CUDA driver loaded Gradvane's library, and that left no report"""


def read(folder: str) -> Found:
    reports = []
    for path in Path(folder).glob("syncs.*.json"):
        pid = re.fullmatch(r"syncs\.(\d+)\.json", path.name)
        try:
            document = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if pid and isinstance(document, dict) and {"source", "reason", "steps"} <= document.keys():
            reports.append(Report(int(pid[1]), document))
    injected = {int(path.suffix[1:]) for path in Path(folder).glob("injected.*") if path.suffix[1:].isdigit()}
    return Found(
        sorted(reports, key=lambda report: (-report.waited("training")[1], report.pid)),
        sorted(injected - {report.pid for report in reports}),
    )


@dataclass(frozen=True)
class Verdict:
    """Whether one process kept to the budget."""

    sentence: str
    is_over: bool = False
    is_unseen: bool = False
    """nobody can say, so nobody may say that it did"""


def judge(report: Report) -> Verdict | None:
    """None: this process took no steps that anybody saw, and none can have been missed."""
    if not report.used_cuda:
        return None
    document = report.document
    if not report.has_counted:
        return Verdict(f"the budget could not be judged: {report.why()}", is_unseen=True)
    over = document["steps_over"]["training"]
    most = document.get("most_in_step")
    if over and most:
        plural = "step" if over == 1 else "steps"
        return Verdict(
            f"over the budget of {document['budget']} per step: {over:,} {plural} had more, "
            f"at most {most['calls']:,} in step {most['run_step']:,}",
            is_over=True,
        )
    if lost := _not_judged(report):
        return Verdict(f"the budget could not be judged throughout: {lost}", is_unseen=True)
    if report.steps == 0:
        return None
    if "budget" not in document or not most:
        why = "all steps were among the first, which may have more (sync_budget_after)"
        if "budget" not in document:
            why = "the agent has none"
        return Verdict(f"the budget could not be judged: {why}", is_unseen=True)
    return Verdict(
        f"within the budget of {document['budget']} per step: at most {most['calls']:,}, in step {most['run_step']:,}"
    )


def _not_judged(report: Report) -> str:
    """Why there may be steps that were not held against the budget."""
    document = report.document
    if not report.is_counting:
        return report.why()
    if document["gaps"]:
        return f"counting stopped {times(document['gaps'])}"
    if uncounted := document.get("steps_uncounted", 0):  # older agents do not say
        return "1 step was not counted" if uncounted == 1 else f"{uncounted:,} steps were not counted"
    lost = document["dropped"]["events"] + document["dropped"]["threads"]
    return f"of {lost:,} host syncs the step is not known" if lost else ""


def times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def failure(found: Found, off: str) -> str | None:
    """Why a program that had to keep to a budget did not, or cannot be said to have; None where it did."""
    if found.silent:
        return f"the budget could not be judged: process {found.silent[0]} used CUDA and left no report"
    reports = found.reports
    verdicts = [(report, verdict) for report in reports if (verdict := judge(report))]
    for wanted in ("is_over", "is_unseen"):
        for report, verdict in verdicts:
            if getattr(verdict, wanted):
                return f"{report.name}: {verdict.sentence}"
    if verdicts:
        return None
    if off:
        why = f"counting is switched off by {off}"
    elif any(report.has_counted for report in reports):
        why = "no steps were seen"
    else:
        why = "nothing was counted"
    return f"the budget could not be judged: {why}"
