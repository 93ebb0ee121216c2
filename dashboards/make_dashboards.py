"""Writes the Grafana dashboards. Needs grafana-foundation-sdk, which `make deps` brings.

    python dashboards/make_dashboards.py --out dashboards/grafana
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from grafana_boards.files import board_files  # noqa: E402
from grafana_boards.house import Settings  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder that the files are written to")
    parser.add_argument("--runbook-base", default=Settings.runbook_base,
                        help="address of docs/runbooks; with one that a browser can follow, panels link to it")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, text in board_files(Settings(arguments.runbook_base)).items():
        (arguments.out / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
