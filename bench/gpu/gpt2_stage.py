"""Stage gpt2: a step of GPT-2's whole training in Python, with and without an agent, in turns."""

import sys

from kernel_stage import rows_of
from process import ROOT, StageError, python_path, run

EXIT_NO_DEVICE = 77
QUICK = ["--rounds", "3", "--block-seconds", "0.8"]


def run_stage(context):
    context.build.build(["gradvane_native"], context.deadline)
    minutes = 0.9 * context.deadline.left() / 60
    done = run([sys.executable, "-B", ROOT / "bench" / "gpu" / "gpt2_steps.py", "--minutes", f"{minutes:.2f}",
                *(QUICK if context.quick else ())], context.log, context.deadline, environment={"PYTHONPATH": python_path(context.build.package)})
    if done.code == EXIT_NO_DEVICE:
        raise StageError(done.err.strip())
    failures = []
    rows = rows_of(done, "gpt2_steps", failures)
    if done.code:
        failures.append(f"gpt2_steps failed with {done.code}: {done.err[-500:]}")
    if not any(row["kind"] == "arm" for row in rows):
        failures.append("no length was measured")
    print(done.err.strip())
    return {"rows": rows, "failure": "; ".join(failures) or None}
