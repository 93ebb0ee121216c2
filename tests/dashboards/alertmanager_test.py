"""The example for Alertmanager: it loads, alerts go where they should, causes silence their consequences."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
AMTOOL = Path(os.environ["GRADVANE_SERVERS_DIR"]) / "amtool"
CONFIG = ROOT / "dashboards" / "alertmanager" / "alertmanager.yaml"
RULES = ROOT / "dashboards" / "alerts" / "gradvane-alerts.yaml"
SEVERITY = {rule["alert"]: rule["labels"]["severity"]
            for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}


def amtool(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([AMTOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_the_file_is_valid():
    done = amtool("check-config", CONFIG)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", SEVERITY)
def test_an_alert_goes_where_its_severity_says(alert):
    receiver = {"critical": "pager", "warning": "team", "info": "log"}[SEVERITY[alert]]
    done = amtool("config", "routes", "test", f"--config.file={CONFIG}", f"--verify.receivers={receiver}",
                  f"alertname={alert}", f"severity={SEVERITY[alert]}", "component=gradvane", "job=train", "run=gpt")
    assert done.returncode == 0 and done.stdout.split()[0] == receiver, done.stdout + done.stderr


def test_an_alert_of_another_program_wakes_nobody():
    done = amtool("config", "routes", "test", f"--config.file={CONFIG}", "alertname=DiskFull", "severity=critical")
    assert done.returncode == 0 and done.stdout.split()[0] == "team", done.stdout + done.stderr


def test_a_wrong_receiver_would_be_seen():
    done = amtool("config", "routes", "test", f"--config.file={CONFIG}", "--verify.receivers=team",
                  "alertname=GradvaneTrainingNonFinite", "severity=critical", "component=gradvane")
    assert done.returncode != 0


def test_a_page_is_one_notification_for_a_run_and_comes_at_once():
    config = yaml.safe_load(CONFIG.read_text())
    assert config["route"]["group_by"] == ["alertname", "job", "run"]
    critical = next(route for route in config["route"]["routes"] if route["receiver"] == "pager")
    assert int(critical["group_wait"].rstrip("s")) <= 10
    for receiver in config["receivers"]:
        for hook in receiver["webhook_configs"]:
            assert hook["send_resolved"] is (receiver["name"] != "log")


def matched(matchers: list[str], alert: str) -> bool:
    for matcher in matchers:
        operator, pattern = re.fullmatch(r'alertname(=~|=)"([^"]+)"', matcher).groups()
        if not (re.fullmatch(pattern, alert) if operator == "=~" else pattern == alert):
            return False
    return True


def inhibited(source: str, target: str) -> list[list[str]]:
    """By which labels that must be equal."""
    return [rule["equal"] for rule in yaml.safe_load(CONFIG.read_text())["inhibit_rules"]
            if matched(rule["source_matchers"], source) and matched(rule["target_matchers"], target)]


@pytest.mark.parametrize("source, target", [
    ("GradvaneTrainingTargetDown", "GradvaneTrainingStalled"), ("GradvaneTrainingTargetDown", "GradvaneStragglerRank"),
    ("GradvaneTrainingRunFailed", "GradvaneTrainingTargetDown"), ("GradvaneTrainingNonFinite", "GradvaneGradientNormExploding"),
    ("GradvaneTrainingNonFinite", "GradvaneLossDiverging"), ("GradvaneTrainingLossNonFinite", "GradvaneLossSpike"),
    ("GradvaneTrainingLossNonFinite", "GradvaneAmpOverflowStreak"), ("GradvaneAmpOverflowStreak", "GradvaneTrainingStepsSkipped"),
    ("GradvaneLossDiverging", "GradvaneLossSpike"), ("GradvaneTrainingTargetDown", "GradvaneRanksMissing"),
    ("GradvaneTrainingRunFailed", "GradvaneTrainingRunTerminated"), ("GradvaneRanksMissing", "GradvaneTrainingStalled"),
    ("GradvaneDataStarvation", "GradvaneThroughputDrop"),
])
def test_a_cause_silences_its_consequence(source, target):
    (equal,) = inhibited(source, target)
    assert equal == ["job", "run"]


def test_no_critical_alert_but_stalls_and_lost_targets_is_ever_silenced():
    silenced = {target for source in SEVERITY for target in SEVERITY if inhibited(source, target)}
    assert {name for name in silenced if SEVERITY[name] == "critical"} == {
        "GradvaneTrainingStalled", "GradvaneTrainingTargetDown", "GradvaneRanksMissing"}


def test_no_alert_silences_itself_and_none_each_other():
    for source in SEVERITY:
        assert inhibited(source, source) == []
        for target in SEVERITY:
            assert not (inhibited(source, target) and inhibited(target, source)), (source, target)


def test_every_alert_that_is_named_exists():
    named = set(re.findall(r"[A-Z][a-z]+(?:[A-Z][a-z]+)+", "\n".join(
        line for line in CONFIG.read_text().splitlines() if "alertname" in line)))
    assert named and named <= set(SEVERITY)
