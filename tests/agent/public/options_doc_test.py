"""docs/configuration.md and the options that `gradvane run --help` shows are what gradvane_options_doc writes."""

import os
import subprocess
from pathlib import Path

ROOT = Path(os.environ["GRADVANE_SOURCE_DIR"])
PROGRAM = Path(os.environ["GRADVANE_BIN_DIR"]) / "gradvane_options_doc"


def test_the_table_of_the_command_is_the_generated_one():
    generated = subprocess.run([PROGRAM, "--python"], check=True, capture_output=True, text=True).stdout
    checked_in = (ROOT / "python" / "gradvane" / "cli" / "tables" / "options.py").read_text()
    assert checked_in == generated, (
        "python/gradvane/cli/tables/options.py is out of date: run "
        "build/<preset>/bin/gradvane_options_doc --python >python/gradvane/cli/tables/options.py"
    )


def test_every_option_is_in_a_group():
    found = {}
    exec((ROOT / "python" / "gradvane" / "cli" / "tables" / "options.py").read_text(), found)
    page = (ROOT / "docs" / "configuration.md").read_text()
    keys = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `") and "GRADVANE" in line]
    assert [row[0] for rows in found["GROUPS"].values() for row in rows] == keys
    assert [f"### {title}" for title in found["GROUPS"]] == [line for line in page.splitlines() if line.startswith("### ")]
    assert min(map(len, found["GROUPS"].values())) > 1


def test_the_checked_in_page_is_the_generated_one():
    generated = subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout
    checked_in = (ROOT / "docs" / "configuration.md").read_text()
    assert checked_in == generated, (
        "docs/configuration.md is out of date: run "
        "build/<preset>/bin/gradvane_options_doc >docs/configuration.md"
    )
