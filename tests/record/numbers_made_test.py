"""What repeats the tables of numbers and of incident classes is what scripts/make_numbers.py makes of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(os.environ["GRADVANE_SOURCE_DIR"])
PROGRAM = Path(os.environ["GRADVANE_BIN_DIR"]) / "gradvane_numbers"


def test_the_checked_in_files_are_those_that_the_table_makes():
    table = subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout
    made = subprocess.run([sys.executable, "-B", ROOT / "scripts/make_numbers.py", "--check"],
                          input=table, capture_output=True, text=True)
    assert made.returncode == 0, (
        f"out of date: {made.stdout}{made.stderr}\n"
        "run build/<preset>/bin/gradvane_numbers | python3 scripts/make_numbers.py")


def test_a_number_that_the_files_lack_is_noticed():
    table = subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout
    more = table.replace('"key": "grad_abs_max"', '"key": "grad_abs_other"')
    made = subprocess.run([sys.executable, "-B", ROOT / "scripts/make_numbers.py", "--check"],
                          input=more, capture_output=True, text=True)
    stale = made.stdout.split()
    assert made.returncode == 1
    assert {"dashboards/page/src/words/numbers.ts", "docs/numbers.md", "docs/api/heatmap.schema.json",
            "docs/api/param.schema.json", "docs/api/history.schema.json", "docs/api/status.schema.json",
            "docs/api/step.schema.json"} <= set(stale)


@pytest.mark.parametrize("old, new, stale", [
    ('"name": "loss_spike"', '"name": "loss_jump"',
     {"dashboards/page/src/words/incident_classes.ts", "dashboards/alert_rules/agent_tables.py", "docs/detectors.md",
      "docs/api/status.schema.json", "python/gradvane/cli/tables/severities.py"}),
    ('"title": "Loss spike"', '"title": "Loss jump"', {"dashboards/page/src/words/incident_classes.ts"}),
    ('"gravity": "mild", "alert": "GradvaneGradientHealthLow"', '"gravity": "training", "alert": "GradvaneGradientHealthLow"',
     {"dashboards/page/src/words/incident_classes.ts"}),
    ('"alert": "GradvaneLossSpike"', '"alert": "GradvaneLossDiverging"',
      {"dashboards/alert_rules/agent_tables.py", "docs/detectors.md", "python/gradvane/cli/tables/severities.py"}),
    ('"closes": "the next step"', '"closes": "later"', {"docs/detectors.md"}),
])
def test_a_class_of_incidents_that_the_files_have_otherwise_is_noticed(old, new, stale):
    table = subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout
    assert table.count(old) == 1
    made = subprocess.run([sys.executable, "-B", ROOT / "scripts/make_numbers.py", "--check"],
                          input=table.replace(old, new), capture_output=True, text=True)
    assert made.returncode == 1 and set(made.stdout.split()) == stale
