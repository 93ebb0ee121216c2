"""Fetches the Pythons beside the one in .deps/venv: tests/collectors/python_stack_test.py reads their stacks, and the
wheel is built for them too.

They come as jars, through the machine's Maven client with its settings, and are unpacked into
.deps/pythons/<version>; .deps/pythons/python3.X runs each. Versions and hashes are in versions.env. Where
there is no client or no network it says so and stays without: the test names what it did not find.

    python scripts/setup/fetch_pythons.py
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEPS = ROOT / ".deps"
INTO = DEPS / "pythons"
INSIDE = "org/bytedeco/cpython/linux-x86_64/"
# Not needed to run a script or to build for it, and half of what there is.
LEFT_OUT = re.compile(r"(share|libs)/|lib/python[\d.]+/(test|idlelib|lib2to3|tkinter|turtledemo|site-packages"
                      r"|ensurepip|config-[^/]*)/|libjnipython")
RUNNER = """#!/bin/sh
# Runs it from where it was unpacked.
tree=$(dirname "$(readlink -f "$0")")/{version}
exec env PYTHONHOME="$tree" LD_LIBRARY_PATH="$tree" "$tree/bin/python{minor}" "$@"
"""


def say(text: str) -> None:
    print(f"[deps] pythons  {text}", flush=True)


def pins() -> list[tuple[str, str]]:
    """(version, hash) of each jar."""
    text = (ROOT / "versions.env").read_text(encoding="utf-8")
    block = re.search(r'^PYTHONS_TO_READ="([^"]*)"', text, re.MULTILINE)
    if block is None:
        raise SystemExit("versions.env has no PYTHONS_TO_READ")
    return [(version, digest) for version, _, digest in (pin.partition("@") for pin in block[1].split())]


def fetch(version: str, digest: str) -> Path | None:
    """The jar, or None where it is not to be had."""
    client = shutil.which("mvn")
    if client is None:
        say("no mvn here, going on without")
        return None
    say(f"fetching {version}")
    part = INTO / "part"
    done = subprocess.run(
        [client, "-q", "-B", f"-Dmaven.repo.local={INTO / 'maven.part'}", "dependency:copy",
         f"-Dartifact=org.bytedeco:cpython:{version}:jar:linux-x86_64", f"-DoutputDirectory={part}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    jar = part / f"cpython-{version}-linux-x86_64.jar"
    if done.returncode != 0 or not jar.is_file():
        say(f"{version} could not be fetched, going on without. Is the network there?")
        return None
    if hashlib.sha256(jar.read_bytes()).hexdigest() != digest:
        raise SystemExit(f"[deps] pythons  error: {version} is not the one that versions.env names")
    return jar


def unpack(jar: Path, version: str) -> None:
    number = version.partition("-")[0]
    minor = number.rpartition(".")[0]
    tree = INTO / number
    shutil.rmtree(tree, ignore_errors=True)
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            short = name.removeprefix(INSIDE)
            if short == name or name.endswith("/") or LEFT_OUT.match(short):
                continue
            target = tree / short
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as packed, target.open("wb") as out:
                shutil.copyfileobj(packed, out)
    (tree / "bin" / f"python{minor}").chmod(0o755)
    runner = INTO / f"python{minor}"
    runner.write_text(RUNNER.format(version=number, minor=minor), encoding="utf-8")
    runner.chmod(0o755)
    subprocess.run([runner, "-c", "import ctypes"], check=True)


def main() -> int:
    if os.uname().machine != "x86_64":
        say("none for this machine, going on without")
        return 0
    (DEPS / "stamps").mkdir(parents=True, exist_ok=True)
    complete = True
    for version, digest in pins():
        stamp = DEPS / "stamps" / f"python-{version}"
        has_headers = any((INTO / version.partition("-")[0]).glob("include/*/Python.h"))
        if has_headers and stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
            continue
        jar = fetch(version, digest)
        if jar is None:
            complete = False
            break
        unpack(jar, version)
        stamp.write_text(digest, encoding="utf-8")
    for part in ("part", "maven.part"):
        shutil.rmtree(INTO / part, ignore_errors=True)
    if complete:
        say("ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
