"""The rules hold to what others promise: metrics, labels, pages, the program that makes the files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from catalogue import catalogue, selectors, wrong_names

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
FOLDER = ROOT / "dashboards"
SCRIPTS = ROOT / "scripts"
FILES = sorted((FOLDER / "alerts").glob("*.yaml"))
RUNBOOKS = ROOT / "docs" / "runbooks"


def rules() -> list[dict[str, object]]:
    return [rule for file in FILES for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


ALERTS = [rule for rule in rules() if "alert" in rule]


def texts(rule: dict[str, object]) -> str:
    annotations = rule.get("annotations", {})
    assert isinstance(annotations, dict)
    return str(rule["expr"]) + " " + " ".join(map(str, annotations.values()))


def test_rules_use_only_names_of_the_catalogue():
    known = catalogue()
    assert len(known) > 60 and len(rules()) > 25
    wrong = [f"{rule.get('alert') or rule.get('record')}: {name}" for rule in rules()
             for name in wrong_names(texts(rule).replace("gradvane-overview", ""), known)]
    assert wrong == []


@pytest.mark.parametrize("text, wrong", [
    ("gradvane_nonsense > 0", "gradvane_nonsense"),
    ('gradvane_run_state{state="dead"} == 1', "gradvane_run_state{state=dead}"),
    ('gradvane_run_state{phase="x"}', "gradvane_run_state{phase}"),
    ('gradvane_incidents_total{class=~"stalled|gone"}', "gradvane_incidents_total{class=gone}"),
    ('gradvane_incidents_total{class=~"nothing_.*"}', "gradvane_incidents_total{class=nothing_.*}"),
])
def test_a_wrong_name_is_seen(text, wrong):
    assert wrong_names(text, catalogue()) == [wrong]


def test_every_class_of_incidents_has_an_alert():
    classes = catalogue()["gradvane_incidents_total"]["class"]
    told = {value for rule in ALERTS for metric, matchers in selectors(str(rule["expr"]))
            if metric == "gradvane_incidents_open" for label, _, values in matchers for value in values.split("|")}
    assert told == classes and len(classes) >= 18


def test_recording_rules_are_named_by_level_metric_and_operation():
    names = [rule["record"] for rule in rules() if "record" in rule]
    assert names and len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch(r"run(_rank)?:gradvane_[a-z_]+:[a-z_]+(5m)?", str(name)), name


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_a_person_needs(rule):
    assert rule["alert"].startswith("Gradvane") and rule["labels"]["component"] == "gradvane"
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    annotations = rule["annotations"]
    assert set(annotations) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert "{{" not in annotations["summary"]
    assert "$labels.run" in annotations["description"] and "var-run=" in annotations["dashboard_url"]
    assert runbook_of(rule).is_file()
    assert f"/runbooks/{runbook_of(rule).stem}" in annotations["runbook_url"]


def runbook_of(rule: dict[str, object]) -> Path:
    """The file that a link without a base names last."""
    annotations = rule["annotations"]
    assert isinstance(annotations, dict)
    (file,) = re.findall(r"docs/runbooks/[a-z-]+\.md", annotations["runbook_url"])
    return ROOT / file


SECTIONS = ["What it means", "First", "Second", "Third", "Usual causes", "What to do", "Tune or silence"]


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_a_runbook_has_what_is_looked_for_at_night(rule):
    text = runbook_of(rule).read_text()
    assert text.startswith(f"# {rule['alert']}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    for section in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
        assert len(section.split()) >= 8, section
    assert wrong_names(text, catalogue()) == []
    assert len(text.split()) < 600


def test_every_runbook_belongs_to_an_alert():
    linked = {runbook_of(rule).name for rule in ALERTS}
    assert {path.name for path in RUNBOOKS.glob("*.md")} == linked | {"training-target-absent.md"}


def test_the_overview_lists_every_alert():
    text = (ROOT / "docs" / "alerts.md").read_text()
    for rule in ALERTS:
        page = runbook_of(rule).name
        assert re.search(rf"^\| \[{rule['alert']}\]\(runbooks/{page}\) \| {rule['labels']['severity']} \|", text,
                         re.MULTILINE), rule["alert"]


COMMANDS = ("curl ", "gradvane ", "py-spy ", "nvidia-smi", "cat ", "ps ", "kubectl ", "tail ", "df ", "top ", "ls ",
            "squeue ", "sacct ")


def queries(text: str) -> list[str]:
    """Lines of code blocks that are PromQL."""
    blocks = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if not line.startswith(COMMANDS)]


def test_queries_in_runbooks_can_be_asked(tmp_path):
    found = [query for path in sorted(RUNBOOKS.glob("*.md")) for query in queries(path.read_text())]
    assert len(found) > 60
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "runbooks", "rules": [
        {"record": f"query:{index}", "expr": query} for index, query in enumerate(found)]}]}, width=10**6))
    done = subprocess.run([Path(os.environ["GRADVANE_SERVERS_DIR"]) / "promtool", "check", "rules", "--lint=none",
                           file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


OPTION = re.compile(r"`([a-z_]+): [^`]+`")


def test_options_named_in_runbooks_exist():
    """An option is written `key: value` in a runbook."""
    known = set(re.findall(r"^\| `([a-z_]+)` \|", (ROOT / "docs" / "configuration.md").read_text(), re.MULTILINE))
    assert len(known) > 20
    named = {key for path in RUNBOOKS.glob("*.md") for key in OPTION.findall(path.read_text())}
    assert named - known == set()


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-B", FOLDER / "make_alerts.py", "--out", folder, *arguments],
                          capture_output=True, text=True, timeout=60)


def test_the_shipped_files_are_what_the_program_makes(tmp_path):
    operator = ROOT / "deploy" / "kustomize" / "prometheus-rules.yaml"
    made = tmp_path.parent / operator.name
    assert make(tmp_path, "--kubernetes", str(made)).returncode == 0
    assert operator.read_bytes() == made.read_bytes(), f"it is out of date: run make_alerts.py with --kubernetes {operator}"
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in FILES}
    for path in FILES:
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), (
            f"{path.name} is out of date: run dashboards/make_alerts.py --out dashboards/alerts")


def promtool(*files: Path) -> None:
    done = subprocess.run([Path(os.environ["GRADVANE_SERVERS_DIR"]) / "promtool", "check", "rules", "--lint=all",
                           "--lint-fatal", *files], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_other_windows_and_addresses_can_be_chosen(tmp_path):
    (tmp_path / "w.json").write_text(json.dumps({"event": "7m"}))
    made = make(tmp_path / "out", "--windows", str(tmp_path / "w.json"), "--runbook-base", "https://wiki/x/",
                "--dashboard-base", "https://grafana", "--jobs", "train.*", "--absent-run", "gpt")
    assert made.returncode == 0, made.stderr
    promtool(*(tmp_path / "out").iterdir())
    text = (tmp_path / "out" / "gradvane-alerts.yaml").read_text()
    for part in ("offset 7m", "'https://wiki/x/loss-spike.md'", "'https://grafana/d/", 'up{job=~"train.*"}'):
        assert part in text
    assert 'absent(gradvane_run_info{run=~"gpt"})' in (tmp_path / "out" / "gradvane-absent.yaml").read_text()


def test_short_windows_are_good_rules_too(tmp_path):
    assert make(tmp_path, "--windows", "short").returncode == 0
    promtool(*tmp_path.iterdir())


def test_a_window_that_does_not_exist_is_refused(tmp_path):
    (tmp_path / "w.json").write_text('{"evnt": "7m"}')
    made = make(tmp_path / "out", "--windows", str(tmp_path / "w.json"))
    assert made.returncode != 0 and "evnt" in made.stderr


def test_types_are_declared_and_hold(tmp_path):
    pytest.importorskip("mypy", reason="make deps brings it")
    sources = [FOLDER / "make_alerts.py", FOLDER / "alert_rules", SCRIPTS / "stack", SCRIPTS / "drill",
               SCRIPTS / "demo_stack.py", SCRIPTS / "alert_drill.py"]
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir",
                           tmp_path, "--follow-imports=silent",
                           *sources], capture_output=True, text=True, timeout=240, cwd=tmp_path,
                          env={**os.environ, "MYPYPATH": f"{FOLDER}:{SCRIPTS}:{ROOT / 'python'}"})
    assert done.returncode == 0, done.stdout + done.stderr
