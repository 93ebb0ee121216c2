"""docs/metrics.md is what gradvane_metrics_doc writes."""

import os
import subprocess
from pathlib import Path

ROOT = Path(os.environ["GRADVANE_SOURCE_DIR"])
PROGRAM = Path(os.environ["GRADVANE_BIN_DIR"]) / "gradvane_metrics_doc"


def test_the_checked_in_page_is_the_generated_one():
    generated = subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout
    checked_in = (ROOT / "docs" / "metrics.md").read_text()
    assert checked_in == generated, (
        "docs/metrics.md is out of date: run build/<preset>/bin/gradvane_metrics_doc >docs/metrics.md"
    )
