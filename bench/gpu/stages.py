"""The stages of run.sh, one after the other; each leaves one JSON file, whether it passed or not."""

import argparse
import concurrent.futures
import json
import os
import re
import sys
import time
import traceback
import xml.etree.ElementTree as ElementTree

import building
import gpt2_stage
import kernel_stage
import machine
import sync_stage
import train_stage
from process import Deadline, Log, StageError, run, say

STAGE_SECONDS = 9 * 60
MUST_RUN = {"GRADVANE_GPU_TESTS_MUST_RUN": "1"}
SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")


class Context:
    """What a stage gets: the build, the log, its time, whether all of it is wanted, and where results go."""

    def __init__(self, build, log, deadline, quick, folder):
        self.build, self.log, self.deadline, self.quick, self.folder = build, log, deadline, quick, folder


def build_stage(context):
    context.build.configure(context.deadline)
    tests = context.build.gpu_tests(context.deadline)
    targets = [*tests, "cuda_pass_bench", "char_gpt", "sync_probe"]
    seconds = context.build.build(targets, context.deadline)
    say(f"{len(targets)} targets")
    return {"targets": targets, "build_seconds": seconds}


def googletest_counts(text):
    def sum_of(pattern):
        return sum(int(number) for number in re.findall(pattern, text))
    return {"cases_passed": sum_of(r"\[  PASSED  \] (\d+) test"),
            "cases_skipped": sum_of(r"\[  SKIPPED \] (\d+) test"),
            "cases_failed": sum_of(r"\[  FAILED  \] (\d+) test")}


def interesting(output):
    """Of a failed program: what it said first, and how it ended."""
    first = max(0, output.find(": Failure") - 300)
    return output if len(output) < 6000 else output[first:first + 4000] + "\n[...]\n" + output[-2000:]


def read_junit(path):
    rows = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        row = {"test": case.get("name"), "passed": case.get("status") == "run",
               "seconds": float(case.get("time") or 0), **googletest_counts(output)}
        if not row["passed"]:
            row["output"] = interesting(output)
        rows.append(row)
    return rows


def test_stage(context):
    context.build.configure(context.deadline)
    tests = context.build.gpu_tests(context.deadline)
    if not tests:
        raise StageError("no test has the label gpu")
    context.build.build(tests, context.deadline)
    junit = building.BUILD / "gpu-tests.xml"
    junit.unlink(missing_ok=True)
    done = run(["ctest", "--preset", "gpu", "--output-junit", junit], context.log, context.deadline,
               environment=MUST_RUN)
    if done.timed_out or not junit.is_file():
        raise StageError(f"ctest did not come to its end:\n{done.tail()}")
    rows = read_junit(junit)
    print(f"{'test':28} {'result':8} {'passed':>7} {'skipped':>8} {'failed':>7} {'s':>7}")
    for row in rows:
        print(f"{row['test']:28} {'passed' if row['passed'] else 'FAILED':8} {row['cases_passed']:7} "
              f"{row['cases_skipped']:8} {row['cases_failed']:7} {row['seconds']:7.1f}")
    for row in rows:
        if not row["passed"]:
            first = max(0, row["output"].find(": Failure") - 200)
            print(f"---- {row['test']}\n{row['output'][first:first + 1200]}")
    bad = [row["test"] for row in rows if not row["passed"] or row["cases_skipped"]]
    return {"tests": rows, "failure": f"failed or skipped: {', '.join(bad)}" if bad or done.code else None}


def sanitize_stage(context):
    context.build.build(building.GPU_TESTS_TO_SANITIZE, context.deadline)
    tool = machine.find_tool("compute-sanitizer", building.toolkit_root())
    if not tool:
        raise StageError("there is no compute-sanitizer here, on the PATH or in the toolkit")
    runs = [(check, program) for check in SANITIZERS for program in building.GPU_TESTS_TO_SANITIZE]
    print(f"{'check':10} {'program':20} {'result':10} {'s':>6}  summary", flush=True)

    def check_one(pair):
        check, program = pair
        command = [tool, f"--tool={check}", "--error-exitcode=86", "--print-limit=20",
                   context.build.program(program), "--gtest_brief=1"]
        if context.quick:
            command.append("--gtest_filter=-*LargeTensors*:*FiveHundredTrials*")
        done = run(command, context.log, context.deadline, environment=MUST_RUN)
        summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", done.out + done.err)
        passed = done.code == 0 and bool(summary)
        result = "passed" if passed else "timed out" if done.timed_out else f"FAILED {done.code}"
        said = [f"{check:10} {program:20} {result:10} {done.seconds:6.0f}  {' '.join(summary[-1:])}", *([] if passed else [done.tail(12)])]
        print("\n".join(said), flush=True)
        return {"check": check, "program": program, "passed": passed, "timed_out": done.timed_out,
                "exit_code": done.code, "seconds": done.seconds, "summary": summary[-1:],
                "output": "" if passed else done.tail(80)}

    # All at the same time: a check keeps one processor busy, and its program's kernels are short.
    with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
        rows = list(pool.map(check_one, runs))
    bad = [f"{row['check']} of {row['program']}" for row in rows if not row["passed"]]
    return {"tool": tool, "runs": rows, "failure": f"did not pass: {', '.join(bad)}" if bad else None}


STAGES = {"build": build_stage, "test": test_stage, "kernel": kernel_stage.run_stage,
          "sync": sync_stage.run_stage, "train": train_stage.run_stage,
          "gpt2": gpt2_stage.run_stage, "sanitize": sanitize_stage}
DEFAULT = ("test", "kernel", "sync", "train", "gpt2", "sanitize")


def run_one(name, context, about, folder):
    """Whether it passed. A stage returns its results; `failure` in them says why it did not pass."""
    say(f"==== {name}")
    start = time.monotonic()
    before = machine.clocks()
    try:
        results = STAGES[name](context)
        failure = results.pop("failure", None)
    except StageError as error:
        results, failure = {}, str(error)
    except Exception:  # a fault of ours: the other stages still count
        results, failure = {}, traceback.format_exc()
    seconds = time.monotonic() - start
    document = {"stage": name, "passed": failure is None, "failure": failure, "seconds": round(seconds, 1),
                "quick": context.quick, "machine": about, "build": context.build.notes,
                "clocks_before": before, "clocks_after": machine.clocks(), "results": results}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"gpu_{name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    say(f"{name}: {'passed' if failure is None else 'FAILED'} after {seconds:.0f} s, {path}")
    if failure:
        print(failure, flush=True)
    return failure is None


def main():
    parser = argparse.ArgumentParser(prog="bench/gpu/run.sh")
    parser.add_argument("--quick", action="store_true", help="fewer cases and rounds")
    parser.add_argument("--minutes", type=float, default=1e6, help="for all stages together")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)}")
    options = parser.parse_args()
    unknown = set(options.stages) - set(STAGES)
    if unknown:
        parser.error(f"no such stage: {', '.join(sorted(unknown))}; choose among {', '.join(STAGES)}")
    # Tools that were installed with torch's Python; behind what is on the PATH already.
    os.environ["PATH"] += os.pathsep + os.path.dirname(sys.executable)
    try:
        about = machine.facts()
    except ImportError as error:
        print(f"[gpu] error: {sys.executable} has no torch ({error}); name one that has with "
              "GRADVANE_GPU_PYTHON", file=sys.stderr)
        return 1
    folder = machine.results_folder(about)
    say(f"{about['device'] or 'no GPU'}, driver {about['driver']}, torch {about['torch']}, "
        f"commit {about['commit']}")
    # It comes back from a lent machine, and stays out of what is kept.
    log = Log((folder if os.environ.get("OUT") else building.BUILD) / "gpu.log")
    build = building.Build(about, log)
    everything = Deadline(60 * options.minutes)
    passed = {}
    for name in options.stages or DEFAULT:
        deadline = Deadline(min(STAGE_SECONDS, everything.left()))
        passed[name] = run_one(name, Context(build, log, deadline, options.quick, folder), about, folder)
    say(", ".join(f"{name} {'passed' if ok else 'FAILED'}" for name, ok in passed.items()))
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
