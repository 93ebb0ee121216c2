"""clang-tidy over our sources, and headers compiled alone; what was found good is remembered.

The library's sources are checked as they are compiled: several together (gradvane_compile_together), so that what
they include is read once.

A result is kept under a hash of all that it depends on among our own files: the source, every header
of ours it reaches, the rules, the tool and the compile command. Torch's headers and GoogleTest's make a
file take up to ten times as long, so tests and files that reach torch are looked at only where they, or
what they include, differ from origin/main (or from HEAD, if there is no such branch).
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import standard_names

ROOT = Path(__file__).resolve().parents[2]
MEMORY = ROOT / ".deps" / "cache" / "lint"
STANDARD = MEMORY / "standard.hpp"
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10)/")
LAUNCHER = re.compile(r"^.*?ccache ")
PRECOMPILED = re.compile(r" -include \S*cmake_pch\.hxx\b")
# Clang warns of things that are right for GCC; we ask only for its checks here.
# omp.h, which torch includes where OpenMP is on, is GCC's: clang-tidy has none.
QUIET = ["--extra-arg=-Wno-everything", "--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-fno-openmp"]


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files() -> set[str]:
    base = git("merge-base", "origin/main", "HEAD") or ["HEAD"]
    return set(git("diff", "--name-only", base[0])) | set(
        git("ls-files", "--others", "--exclude-standard"))


def headers() -> list[str]:
    return [name for name in git("ls-files", "--cached", "--others", "--exclude-standard", "--", "*.hpp")
            if (ROOT / name).is_file()]


def of_ours(target: str) -> str | None:
    """The file of ours that an #include means."""
    return next((path for path in (target, f"agent/include/{target}") if (ROOT / path).is_file()), None)


def reach(name: str, seen: dict[str, bool]) -> dict[str, bool]:
    """Our own files that `name` reaches through includes, each with whether it names torch itself."""
    if name in seen:
        return seen
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = INCLUDE.findall(text)
    seen[name] = any(TORCH.match(target) for target in targets)
    for target in targets:
        if (path := of_ours(target)) is not None:
            reach(path, seen)
    return seen


class Unit:
    """What the build compiles by one command: one of our own sources, or several."""

    def __init__(self, entry: dict[str, str], build: Path):
        path = Path(entry["file"])
        self.entry = entry | {"command": LAUNCHER.sub("", entry["command"])}
        sources = [path]
        if path.parent.name == "Unity":
            sources = [Path(name) for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)]
        self.sources = [source.relative_to(ROOT).as_posix() for source in sources
                        if source.suffix == ".cpp" and source.is_relative_to(ROOT)
                        and not source.is_relative_to(build) and source.exists()]


def units_of(build: Path) -> list[Unit]:
    entries = json.loads((build / "compile_commands.json").read_text())
    return [unit for unit in (Unit(entry, build) for entry in entries) if unit.sources]


class Job:
    def __init__(self, names: list[str], command: list[str], rules: str):
        self.names = names
        self.command = command
        reached: dict[str, bool] = {}
        for name in names:
            reach(name, reached)
        self.is_slow = any(reached.values()) or any(
            name.startswith("tests/") and name.endswith(".cpp") for name in names)
        self.reached = set(reached)
        digest = hashlib.sha256(json.dumps([command, rules]).encode())
        for path in sorted(reached):
            digest.update(path.encode() + (ROOT / path).read_bytes())
        self.stamp = MEMORY / digest.hexdigest()

    def run(self) -> str | None:
        """None when all is well, else what the tool said."""
        done = subprocess.run(["nice", *self.command], cwd=ROOT, capture_output=True, text=True)
        if done.returncode == 0:
            self.stamp.touch()
            return None
        said = done.stdout.strip() or done.stderr.strip()
        return f"{', '.join(self.names)}:\n{said}"


def tidy_jobs(tidy: str, units: list[Unit]) -> list[Job]:
    version = subprocess.run([tidy, "--version"], capture_output=True, text=True).stdout
    rules = version + (ROOT / ".clang-tidy").read_text()
    # clang-tidy would read the build's precompiled headers as text.
    entries = [unit.entry | {"command": PRECOMPILED.sub("", unit.entry["command"])} for unit in units]
    (MEMORY / "compile_commands.json").write_text(json.dumps(entries))
    jobs = []
    for unit, entry in zip(units, entries):
        command = [tidy, "--quiet", f"--config-file={ROOT}/.clang-tidy", "-p", str(MEMORY),
                   f"--header-filter=^{re.escape(str(ROOT))}/[a-z]+/", *QUIET]
        jobs.append(Job(unit.sources, [*command, entry["file"]], rules + entry["command"]))
    return jobs


def proven_by(name: str) -> str | None:
    """The header of ours that compiles alone if this file does: the first that it includes, if nothing but the standard
    library comes before it."""
    for target in INCLUDE.findall((ROOT / name).read_text(encoding="utf-8")):
        if target in standard_names.DECLARES:
            continue
        return of_ours(target)
    return None


def header_jobs(units: list[Unit]) -> list[Job]:
    """A header compiles alone, with the include paths of a source that includes it, else of one beside it, or
    in a folder above. What a source, or another header, includes before all else of ours is compiled with that."""
    commands: dict[Path, list[str]] = {}
    users: dict[str, list[str]] = {}
    proven: set[str | None] = set()
    for unit in units:
        words = shlex.split(unit.entry["command"])
        for source in unit.sources:
            commands.setdefault((ROOT / source).parent, words)
            text = (ROOT / source).read_text(encoding="utf-8")
            for included in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
                users.setdefault(included, words)
            if source == unit.sources[0] and not PRECOMPILED.search(unit.entry["command"]):
                proven.add(proven_by(source))
    jobs = []
    for name in headers():
        command = users.get(name) or next(
            (commands[folder] for folder in (ROOT / name).parents if folder in commands), None)
        if command is None or name in proven:
            continue
        flags = [word for i, word in enumerate(command) if word != "-Winvalid-pch"
                 and (word.startswith(("-I", "-D", "-std", "-m", "-W", "-isystem")) or command[i - 1] == "-isystem")]
        # As the main file it would be warned about `#pragma once` and about functions nobody calls.
        jobs.append(Job([name], [command[0], *flags, "-Wno-unused-function", "-fsyntax-only", "-include",
                                 str(STANDARD), "-include", name, "-x", "c++", "/dev/null"],
                        standard_names.MOST_INCLUDED))
    # Not by one with torch, which is seldom compiled.
    proven |= {proven_by(*job.names) for job in jobs if not job.is_slow}
    return [job for job in jobs if job.names[0] not in proven]


def precompile_the_standard_library(jobs: list[Job]) -> None:
    """Writes STANDARD, and what the compiler makes of it with the flags that most of these jobs have. One with other
    flags reads STANDARD itself."""
    flags = collections.Counter(
        (job.command[0], *(word for word in job.command if word.startswith(("-std", "-m")))) for job in jobs)
    if not flags:
        return
    STANDARD.write_text("".join(f"#include <{name}>\n" for name in standard_names.MOST_INCLUDED.split()))
    subprocess.run([*flags.most_common(1)[0][0], "-x", "c++-header", str(STANDARD), "-o", f"{STANDARD}.gch"],
                   check=True)


def forgotten_includes() -> list[str]:
    """What a header uses of the standard library, and includes nothing for."""
    complaints = []
    for name in headers():
        reached = [(ROOT / path).read_text(encoding="utf-8") for path in reach(name, {})]
        included = [target for text in reached for target in INCLUDE.findall(text)]
        complaints += [f"{name}: {said}" for said in standard_names.forgotten(reached[0], included)]
    return complaints


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tidy", required=True)
    parser.add_argument("--build", required=True, type=Path)
    options = parser.parse_args()
    MEMORY.mkdir(parents=True, exist_ok=True)

    build = (ROOT / options.build).resolve()
    changed = changed_files()
    units = units_of(build)
    alone = header_jobs(units)
    jobs = alone + tidy_jobs(options.tidy, units)
    wanted = [job for job in jobs if not job.is_slow or job.reached & changed]
    new = [job for job in wanted if not job.stamp.exists()]
    precompile_the_standard_library([job for job in new if job in alone])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = forgotten_includes() + [said for said in pool.map(Job.run, new) if said]
    print("\n\n".join(complaints) if complaints else
          f"{len(new)} checked, {len(wanted) - len(new)} known good, "
          f"{len(jobs) - len(wanted)} slow ones left alone: not changed")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
