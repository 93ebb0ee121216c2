"""Runs every fault at once, each in a training of its own, in one Prometheus."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from alert_rules.files import rule_files
from alert_rules.windows import SHORT, Settings
from drill.faults import FAULTS, Fault, Outcome
from stack.processes import Program, free_port, wait_for
from stack.servers import Servers, address_of, endpoints_in, get_json
from stack.webhook import Notice, Webhook

TRAINING = Path(__file__).with_name("training.py")
MOST_SECONDS_TO_TELL = 20.0
MOST_SECONDS_TO_RESOLVE = 180.0
STEPS_BEFORE = 60
"""so that the detectors have a history"""


@dataclass
class Run:
    fault: Fault
    folder: Path
    environment: dict[str, str]
    program: Program
    broken_at: float = 0.0

    def kill(self) -> None:
        self.program.kill()

    def end(self) -> None:
        if self.fault.ends == "killed":
            self.program.kill()
        elif self.fault.ends == "terminated":
            self.program.send(signal.SIGTERM)
        else:
            (self.folder / "stop").touch()

    def is_running(self) -> bool:
        return bool(self.endpoint()["state"] == "running")

    def endpoint(self) -> dict[str, Any]:
        return endpoints_in(self.folder)[0]

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = get_json(self.endpoint()["url"] + "/api/v1/status")
        return status


def known_options(package: Path) -> set[str]:
    done = subprocess.run([sys.executable, "-c", "from gradvane.options import KEYS; print(*KEYS)"], text=True,
                          capture_output=True, env={**os.environ, "PYTHONPATH": str(package)}, check=True)
    return set(done.stdout.split())


def start(fault: Fault, folder: Path, package: Path) -> Run:
    folder.mkdir(parents=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GRADVANE")}
    environment |= {
        "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1", "GRADVANE_RUN": fault.name,
        # The port stays the same when the process comes back.
        "GRADVANE_PORT": str(free_port()), "GRADVANE_RUN_DIR": str(folder),
        "GRADVANE_STALL_SECONDS": "3" if fault.name == "stall" else "30",
    }
    return Run(fault, folder, environment, launch(fault, folder, environment))


def launch(fault: Fault, folder: Path, environment: dict[str, str]) -> Program:
    return Program(fault.name, [sys.executable, "-B", TRAINING, fault.name, folder], folder / "output.txt",
                   environment)


def alertmanager_config(url: str) -> str:
    return json.dumps({
        "route": {"receiver": "drill", "group_by": ["alertname", "run"], "group_wait": "0s", "group_interval": "1s",
                  "repeat_interval": "1h"},
        "receivers": [{"name": "drill", "webhook_configs": [{"url": url, "send_resolved": True}]}],
    })


class Drill:
    """`Drill(...).run()` returns an outcome for each fault asked for."""

    def __init__(self, programs: Path, package: Path, folder: Path, names: Iterable[str] = ()) -> None:
        self._programs = programs
        self._package = package
        self._folder = folder
        wanted = set(names) or {fault.name for fault in FAULTS}
        options = known_options(package)
        self.outcomes = {fault.name: Outcome(fault) for fault in FAULTS if fault.name in wanted}
        for outcome in self.outcomes.values():
            if outcome.fault.needs and outcome.fault.needs not in options:
                outcome.not_run = f"this build has no option {outcome.fault.needs}"

    def run(self) -> list[Outcome]:
        with ExitStack() as stack:
            hook = stack.enter_context(Webhook())
            servers = stack.enter_context(self._servers(hook))
            runs = [start(outcome.fault, self._folder / outcome.fault.name, self._package)
                    for outcome in self.outcomes.values() if not outcome.not_run]
            for run in runs:
                stack.callback(run.kill)
            self._warm_up(runs, servers)
            self._break(runs)
            self._wait_until("firing", [run for run in runs if run.fault.alert], hook, MOST_SECONDS_TO_TELL)
            self._look_at_incidents(runs)
            self._bring_back(runs)
            told = [run for run in runs if run.fault.alert and self._notices(run, hook, "firing")]
            self._wait_until("resolved", told, hook, MOST_SECONDS_TO_RESOLVE)
            time.sleep(2)
            self._sum_up(runs, hook, servers)
        return list(self.outcomes.values())

    def _servers(self, hook: Webhook) -> Servers:
        rules = self._folder / "rules"
        rules.mkdir(parents=True)
        for name, text in rule_files(Settings(SHORT)).items():
            (rules / name).write_text(text, encoding="utf-8")
        config = self._folder / "alertmanager.json"
        config.write_text(alertmanager_config(hook.url), encoding="utf-8")
        return Servers(self._programs, self._folder / "servers", sorted(rules.iterdir()), config, interval="1s")

    def _warm_up(self, runs: list[Run], servers: Servers) -> None:
        """Until Prometheus has seen every run make steps, and long enough that nothing counts as new."""
        for run in runs:
            wait_for(run.is_running, f"{run.fault.name} to make steps", 120, run.program)
        servers.targets.write(address_of(run.endpoint()) for run in runs)
        for run in runs:
            asked = f'gradvane_run_step{{run="{run.fault.name}"}} > {STEPS_BEFORE}'
            wait_for(partial(servers.query, asked), f"Prometheus to see {run.fault.name}", 60, run.program)
        time.sleep(3)

    def _break(self, runs: list[Run]) -> None:
        for run in runs:
            if run.fault.ends and run.fault.ends != "of it":
                self.outcomes[run.fault.name].step = run.status()["latest"]["run_step"]
                run.broken_at = time.time()
                run.end()
            (run.folder / "trigger").touch()
        for run in runs:
            if run.fault.alert and run.fault.ends in ("", "of it"):
                event = run.folder / "event.json"
                wait_for(event.exists, f"{run.fault.name} to break", 10, run.program)
                told = json.loads(event.read_text(encoding="utf-8"))
                run.broken_at, self.outcomes[run.fault.name].step = told["at"], told["step"]

    def _notices(self, run: Run, hook: Webhook, status: str) -> list[Notice]:
        return [notice for notice in hook.notices(run.fault.name)
                if notice.status == status and notice.labels["alertname"] == run.fault.alert]

    def _wait_until(self, status: str, runs: list[Run], hook: Webhook, seconds: float) -> None:
        until = time.time() + seconds
        waiting = runs
        while waiting and time.time() < until:
            time.sleep(0.1)
            waiting = [run for run in waiting if not self._notices(run, hook, status)]

    def _look_at_incidents(self, runs: list[Run]) -> None:
        for run in runs:
            if run.fault.ends:
                continue
            outcome = self.outcomes[run.fault.name]
            incidents = run.status()["incidents"]
            mine = [incident for incident in incidents if incident["class"] == run.fault.incident]
            outcome.incident = mine[0] if mine else None
            outcome.others = tuple(i["class"] for i in incidents if i is not outcome.incident)

    def _bring_back(self, runs: list[Run]) -> None:
        for run in runs:
            if run.fault.ends == "killed":
                run.program = launch(run.fault, run.folder, run.environment)

    def _sum_up(self, runs: list[Run], hook: Webhook, servers: Servers) -> None:
        for run in runs:
            outcome = self.outcomes[run.fault.name]
            told = self._notices(run, hook, "firing")
            outcome.told = len(told)
            if told:
                outcome.told_after = told[0].at - run.broken_at
                outcome.description = told[0].annotations["description"]
                resolved = self._notices(run, hook, "resolved")
                outcome.resolved_after = resolved[0].at - told[0].at if resolved else None
            # Also those that were pending, or never left Prometheus; but one slow scrape is no target that is down.
            seen = {result["metric"]["alertname"] for result in servers.query(
                f'count by (alertname) (count_over_time(ALERTS{{run="{run.fault.name}"}}[10m]) unless '
                'count_over_time(ALERTS{alertname="GradvaneTrainingTargetDown",alertstate="pending"}[10m]))')}
            outcome.surprises = tuple(sorted(seen - {run.fault.alert, *run.fault.also}))
            if not run.fault.alert and not run.fault.ends:
                missed = servers.query(f'count_over_time((up{{job="training"}} == 0)[5m:1s]) >= 3 and on (instance) '
                                       f'gradvane_run_info{{run="{run.fault.name}"}}')
                steps = servers.query(f'gradvane_steps_total{{run="{run.fault.name}"}}')
                if missed or not steps or float(steps[0]["value"][1]) < 2 * STEPS_BEFORE:
                    outcome.surprises += ("it was not scraped throughout, or made no steps",)


def seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def table(outcomes: list[Outcome]) -> str:
    rows = [("fault", "alert", "broken at step", "detected at step", "first named", "told after", "resolved after", "")]
    for outcome in outcomes:
        wrong = outcome.faults()
        verdict = "ok" if not wrong else "NOT RUN" if outcome.not_run else "FAILED"
        detected = outcome.incident["first_step"] if outcome.incident else ""
        rows.append((
            outcome.fault.name, outcome.fault.alert or "(none)", "" if outcome.step is None else str(outcome.step),
            str(detected), outcome.first_named, seconds(outcome.told_after), seconds(outcome.resolved_after), verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines += [f"{outcome.fault.name}: {what}" for outcome in outcomes for what in outcome.faults()]
    return "\n".join(lines)


def stop_on_signals() -> None:
    """SIGTERM ends the drill as Ctrl-C does, so that its programs go as well."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
