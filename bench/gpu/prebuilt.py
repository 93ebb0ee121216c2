"""Runs on a machine with a GPU what scripts/gpu_prebuilt.sh built elsewhere: no compiler, no CMake, no time lost.

  python3 bench/gpu/prebuilt.py tests [NAME...]   the tests labelled gpu, one after the other; none may skip
  python3 bench/gpu/prebuilt.py run PROGRAM...    a program of the bundle, such as cuda_pass_bench --quick
  python3 bench/gpu/prebuilt.py python SCRIPT...  a Python script of the checkout with the bundle's package
  python3 bench/gpu/prebuilt.py stage NAME... [--quick] [--minutes N]   stages of run.sh: kernel, sync, train, gpt2, sanitize

Results go to $OUT: gpu_tests.json, gpu_tests.log with what each test printed, what a program or a script printed in
a file of its name, and gpu_<stage>.json. --list is for the script that builds the bundle.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import building
import machine
import stages
from process import ROOT, Deadline, Log, python_path, run

BUNDLE = ROOT / ".deps" / "gpu-prebuilt" / "gpu-prebuilt.tgz"
SECONDS_EACH = 150


def command_of(name, place):
    """A program, or a script of tests/python/cuda or tests/harm."""
    if name == "harm_cuda_test":
        return [sys.executable, "-B", ROOT / "tests" / "harm" / "cuda_test.py"]
    if name.startswith("python_"):
        return [sys.executable, "-B", ROOT / "tests" / "python" / "cuda" / f"{name.removeprefix('python_')}.py"]
    return [place / "bin" / name]


def environment(place):
    import torch
    torch_dir = Path(torch.__file__).resolve().parent
    nvidia = torch_dir.parent / "nvidia"
    libraries = [place / "libs", place / "lib", torch_dir / "lib", nvidia / "cu13" / "lib", nvidia / "nccl" / "lib"]
    return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)), "GTEST_COLOR": "no",
            "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "GRADVANE_GPU_TESTS_MUST_RUN": "1",
            "GRADVANE_SOURCE_DIR": str(ROOT), "GRADVANE_BUILD_DIR": str(place), "GRADVANE_BIN_DIR": str(place / "bin"),
            "GRADVANE_VENV_PYTHON": sys.executable, "GRADVANE_SANITIZE": "", "GRADVANE_SERVERS_DIR": ""}


def facts(place):
    return machine.facts() | {"commit": (place / "commit").read_text().strip()}


def run_and_keep(command, words, env, folder, name, about):
    """Its exit status. What it prints is whole in a file, line by line: only the end of what is printed comes back. The
    first line says what ran where: of which commit, on which device and day."""
    if not os.environ.get("OUT"):
        return subprocess.run(command, env=env, cwd=folder).returncode
    with open(Path(os.environ["OUT"]) / f"{name}.txt", "a") as out:
        out.write(json.dumps({"kind": "run", "command": words, **about}) + "\n")
        program = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE, text=True)
        for line in program.stdout:
            print(line, end="", flush=True)
            out.write(line)
            out.flush()
        return program.wait()


def run_tests(names, place, folder):
    env = environment(place)
    log = Log(folder / "gpu_tests.log")
    about = facts(place)
    rows = []
    for name in names:
        done = run(command_of(name, place), log, Deadline(SECONDS_EACH), environment=env)
        output = done.out + done.err
        passed = done.code == 0 and "[  SKIPPED ]" not in output
        rows.append({"test": name, "passed": passed, "exit_code": done.code, "seconds": round(done.seconds, 1)})
        # After each: a call may be cut short.
        (folder / "gpu_tests.json").write_text(json.dumps({"machine": about, "tests": rows}, indent=1) + "\n")
        print(f"{name:34} {'passed' if passed else f'FAILED {done.code}':10} {done.seconds:6.1f} s", flush=True)
        if not passed:
            said = [line for line in output.splitlines() if "FAILED" in line or "rror" in line or ": Failure" in line]
            print("\n".join(f"    {line[:200]}" for line in said[:6]), flush=True)
    return 0 if all(row["passed"] for row in rows) else 1


class Prebuilt:
    """In the place of building.Build: all is there."""

    notes = {"prebuilt": True}

    def __init__(self, place):
        self.package = place / "python"
        self._place = place

    def program(self, name):
        return self._place / "bin" / name

    def build(self, _targets, _deadline):
        return 0.0


def run_stages(words, place, folder):
    parser = argparse.ArgumentParser(prog="prebuilt.py stage")
    parser.add_argument("names", nargs="+", choices=[name for name in stages.DEFAULT if name != "test"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--minutes", type=float, default=stages.STAGE_SECONDS / 60, help="for all of them together")
    options = parser.parse_args(words)
    os.environ.update(environment(place))
    about, log, build = facts(place), Log(folder / "gpu.log"), Prebuilt(place)
    everything = Deadline(60 * options.minutes)
    passed = [stages.run_one(name, stages.Context(build, log, Deadline(everything.left()), options.quick, folder), about, folder)
              for name in options.names]
    return 0 if all(passed) else 1


def main():
    if sys.argv[1:2] == ["--list"]:
        ctest, build = sys.argv[2:4]
        print("\n".join(building.gpu_test_names(subprocess.run(
            [ctest, "--test-dir", build, *building.LIST_GPU_TESTS], capture_output=True, text=True, check=True).stdout)))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tests", "run", "python", "stage"))
    parser.add_argument("words", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not BUNDLE.is_file():
        print(f"[gpu] error: there is no {BUNDLE.relative_to(ROOT)}; `make gpu-prebuilt` makes it elsewhere", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shutil.unpack_archive(BUNDLE, place)
        env = {**os.environ, **environment(place)}
        if options.what == "run":
            command = [place / "bin" / options.words[0], *options.words[1:]]
            return run_and_keep(command, options.words, env, place, options.words[0], facts(place))
        if options.what == "python":
            env["PYTHONPATH"] = python_path(place / "python")
            command = [sys.executable, "-B", *options.words]
            return run_and_keep(command, options.words, env, ROOT, Path(options.words[0]).stem, facts(place))
        results = Path(os.environ.get("OUT") or ROOT / "build")
        if options.what == "stage":
            return run_stages(options.words, place, results)
        names = options.words or (place / "tests").read_text().split()
        return run_tests(names, place, results)


if __name__ == "__main__":
    sys.exit(main())
