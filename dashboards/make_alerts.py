"""Writes the alert and recording rules for Prometheus.

    python dashboards/make_alerts.py --windows production --out dashboards/alerts
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from alert_rules.files import ABSENT, absent_file, prometheus_rules, rule_files  # noqa: E402
from alert_rules.windows import Settings, windows_of  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", default="production", help="production, short, or a JSON file of windows")
    parser.add_argument("--out", type=Path, required=True, help="folder that the files are written to")
    parser.add_argument("--runbook-base", default=Settings.runbook_base, help="address of docs/runbooks; by default the endpoint of the run that the alert is about")
    parser.add_argument("--dashboard-base", default=Settings.dashboard_base, help="address of Grafana")
    parser.add_argument("--jobs", default="", metavar="REGEX",
                        help="GradvaneTrainingTargetDown also for targets of these jobs that no run was ever seen on")
    parser.add_argument("--absent-run", default="", metavar="REGEX",
                        help=f"write {ABSENT} too: an alert when no run of that name is there")
    parser.add_argument("--kubernetes", type=Path, metavar="FILE", help="write the rules as objects of Prometheus Operator too")
    arguments = parser.parse_args()
    try:
        windows = windows_of(arguments.windows)
    except (OSError, TypeError, ValueError) as error:
        parser.error(f"--windows: {error}")
    settings = Settings(windows, arguments.runbook_base, arguments.dashboard_base, arguments.jobs)
    files = rule_files(settings)
    if arguments.absent_run:
        files[ABSENT] = absent_file(settings, arguments.absent_run)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (arguments.out / name).write_text(text, encoding="utf-8")
    if arguments.kubernetes:
        arguments.kubernetes.write_text(prometheus_rules(files), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
