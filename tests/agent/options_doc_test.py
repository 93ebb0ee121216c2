"""docs/configuration.md is what gradvane_options_doc writes."""

import os
import subprocess
from pathlib import Path

ROOT = Path(os.environ["GRADVANE_SOURCE_DIR"])
PROGRAM = Path(os.environ["GRADVANE_BIN_DIR"]) / "gradvane_options_doc"


def test_the_checked_in_page_is_the_generated_one():
    generated = subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout
    checked_in = (ROOT / "docs" / "configuration.md").read_text()
    assert checked_in == generated, (
        "docs/configuration.md is out of date: run "
        "build/<preset>/bin/gradvane_options_doc >docs/configuration.md"
    )
