"""Stage sync: what CUPTI, CUDA and PyTorch's profiler really do, for the questions of docs/internals/sync-ledger.md."""

import shutil
import sys

import building
import machine
from process import ROOT, StageError, python_path, run, say

EXIT_NO_DEVICE = 77
QUICK = ("V1", "V3", "V4", "V6", "V8", "V11")


def owners(context, probe):
    """V8: the same question under the tools that want the subscription for themselves."""
    building.BUILD.mkdir(parents=True, exist_ok=True)
    tools = {
        "compute-sanitizer": (machine.find_tool("compute-sanitizer", building.toolkit_root()),
                              ["--target-processes=all"]),
        "nsys": (shutil.which("nsys"), ["profile", "--trace=cuda", "--force-overwrite=true",
                                        f"--output={building.BUILD / 'sync_probe'}"]),
    }
    lines = []
    for name, (tool, words) in tools.items():
        if not tool:
            lines.append(f"V8 under {name}: there is none here")
            continue
        done = run([tool, *words, probe, "V8"], context.log, context.deadline, limit=90)
        said = [line for line in done.out.splitlines() if line.startswith("V8 ")]
        lines += [f"V8 under {name}:{line[2:]}" for line in said]
        if not said:
            lines.append(f"V8 under {name}: ended with {done.code}: {done.tail(2)!r}")
    return lines


def run_stage(context):
    context.build.build(["sync_probe", "gradvane_native"], context.deadline)
    probe = context.build.program("sync_probe")
    quick = ["--quick"] if context.quick else []
    done = run([probe, *quick, *(QUICK if context.quick else ())], context.log, context.deadline,
               limit=0.5 * context.deadline.left())
    if done.code == EXIT_NO_DEVICE:
        raise StageError(done.err.strip())
    failures = [] if done.code == 0 else [f"sync_probe ended with {done.code}"]
    lines = done.out.splitlines() + owners(context, probe)
    done = run([sys.executable, "-B", ROOT / "bench" / "sync" / "profiler_probe.py", *quick], context.log,
               context.deadline, environment={"PYTHONPATH": python_path(context.build.package), "GRADVANE_PORT": "-1"})
    lines += done.out.splitlines()
    if done.code != 0:
        failures.append(f"profiler_probe ended with {done.code}: {done.err.strip()[-500:]}")
    print("\n".join(lines))
    raw = context.folder / "gpu_sync.txt"
    raw.parent.mkdir(parents=True, exist_ok=True)
    raw.write_text("\n".join(lines) + "\n")
    say(f"the same lines are in {raw}")
    return {"lines": lines, "failure": "; ".join(failures) or None}
