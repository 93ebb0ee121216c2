"""Breaks trainings in eight ways and shows how long it took until a webhook got the alert. Then it breaks trainings
that have a policy, in Python and in C++, and shows where they end.

    . .deps/env.sh && "$GRADVANE_VENV_PYTHON" scripts/alert_drill.py     (make drill)
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "dashboards")]

from drill import policies  # noqa: E402
from drill.course import Drill, stop_on_signals, table  # noqa: E402
from drill.faults import FAULTS  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="where the package was built")
    parser.add_argument("--only", nargs="+", choices=[fault.name for fault in FAULTS], default=[])
    arguments = parser.parse_args()
    servers = os.environ.get("GRADVANE_SERVERS")
    if not servers:
        parser.error("GRADVANE_SERVERS is not set: source .deps/env.sh")
    stop_on_signals()
    with tempfile.TemporaryDirectory(prefix="gradvane-drill-") as folder:
        outcomes = Drill(Path(servers), arguments.build / "python", Path(folder), arguments.only).run()
        print(table(outcomes))
        results = [] if arguments.only else policies.run(["c++", "python"], arguments.build, Path(folder))
    if results:
        print("\n" + policies.table(results))
    has_failed = any(outcome.faults() for outcome in outcomes) or any(result.faults() for result in results)
    return 1 if has_failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
