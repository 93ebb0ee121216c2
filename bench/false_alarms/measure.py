#!/usr/bin/env python3
"""Counts the incidents of healthy runs, by class: each one is a false alarm.

    build=build/release; PYTHONPATH=$build/python python bench/false_alarms/measure.py --steps 4000 --out FILE
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import healthy_other
import healthy_text
import torch
from training import Run


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--steps", type=int, default=4000, help="of each run")
    arguments.add_argument("--seeds", type=int, default=1, help="each run so often")
    arguments.add_argument("--only", default="", help="part of a run's name")
    arguments.add_argument("--out", type=Path, help="JSON file of the counts")
    arguments.add_argument("--recordings", type=Path, help="folder for a recording of each run")
    chosen = arguments.parse_args()
    torch.set_num_threads(1)
    rows = []
    for train in [*healthy_text.RUNS, *healthy_other.RUNS]:
        if chosen.only not in train.__name__:
            continue
        for seed in range(chosen.seeds):
            run = Run(chosen.steps, seed)
            train(run)
            run.end()
            rows.append({"run": train.__name__, "seed": seed, "steps": run.steps, "incidents": dict(run.incidents),
                         "evidence": run.evidence[:20]})
            print(f"{train.__name__:45} seed {seed}  {run.steps} steps  {dict(run.incidents) or 'none'}", flush=True)
            for line in run.evidence[:5]:
                print("    " + line)
    steps = sum(row["steps"] for row in rows)
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row["incidents"])
    print(f"{steps} steps: {dict(total) or 'no incident'}")
    if chosen.out:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        chosen.out.write_text(json.dumps({
            "date": date.today().isoformat(), "commit": commit.stdout.strip(), "machine": platform.machine(),
            "torch": torch.__version__, "steps": steps, "incidents": dict(total), "runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
