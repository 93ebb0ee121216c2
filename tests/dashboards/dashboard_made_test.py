"""The dashboards are what their program makes, whatever the machine; and what a site may choose."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("grafana_foundation_sdk", reason="it wants Python 3.11")

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
FOLDER = ROOT / "dashboards"
SCRIPTS = ROOT / "scripts"


def make(folder: Path, *arguments: str, **environment: str) -> dict[str, str]:
    done = subprocess.run([sys.executable, "-B", FOLDER / "make_dashboards.py", "--out", folder, *arguments],
                          capture_output=True, text=True, timeout=60, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_shipped_files_are_what_the_program_makes(tmp_path, seed):
    made = make(tmp_path, PYTHONHASHSEED=seed, TZ="Asia/Tokyo")
    shipped = {path.name: path.read_text(encoding="utf-8") for path in (FOLDER / "grafana").glob("*.json")}
    assert made.keys() == shipped.keys()
    for name, text in shipped.items():
        assert made[name] == text, (
            f"{name} is out of date: run dashboards/make_dashboards.py --out dashboards/grafana")


def test_what_was_made_can_be_read_by_the_types_it_was_made_with(tmp_path):
    sys.path.insert(0, str(FOLDER))
    from grafana_boards.files import in_sight
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    for path in (FOLDER / "grafana").glob("*.json"):
        board = json.loads(path.read_text())
        again = in_sight(json.loads(JSONEncoder().encode(Dashboard.from_json(board))))
        assert again == board, path.name


def test_runbooks_become_links_where_a_browser_can_follow_them(tmp_path):
    shipped = " ".join(path.read_text() for path in (FOLDER / "grafana").glob("*.json"))
    made = " ".join(make(tmp_path, "--runbook-base", "https://wiki/runbooks/").values())
    assert "https://wiki/runbooks/training-non-finite.md" in made and "Runbook: docs/runbooks/" not in made
    assert "Runbook: docs/runbooks/training-non-finite.md" in shipped
    assert re.findall(r'"url": "docs/', shipped) == []


def test_types_are_declared_and_hold(tmp_path):
    pytest.importorskip("mypy", reason="make deps brings it")
    sources = [FOLDER / "make_dashboards.py", FOLDER / "grafana_boards", SCRIPTS / "board_check"]
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--python-version",
                           "3.11", "--cache-dir", tmp_path, "--follow-imports=silent", *sources], capture_output=True,
                          text=True, timeout=240, cwd=tmp_path, env={**os.environ, "MYPYPATH": f"{FOLDER}:{SCRIPTS}"})
    assert done.returncode == 0, done.stdout + done.stderr
