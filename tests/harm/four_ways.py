"""Runs one script in one way and collects what a person or a scheduler can see of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "warm"))

import pythons  # noqa: E402
from program import Act, Place, Program  # noqa: E402

BUILD = Path(os.environ.get("GRADVANE_BUILD_DIR", HERE.parents[1] / "build" / "release"))
PACKAGE = BUILD / "python"
AROUND = dict(os.environ)
"""as this process began: pytest changes its environment while programs are started on other threads"""
OURS = "gradvane: "
"""what each of our lines on the standard error begins with"""
LIMIT = 120.0
"""seconds until a plain program counts as hung"""


@dataclass
class Outcome:
    """What can be seen of a program when it is over."""

    end: str
    """exit status N, killed by SIGNAL, or still there"""
    seconds: float
    stdout: list[str]
    stderr: list[str]
    """without our lines"""
    said: list[str]
    """our lines"""
    survivors: list[str]
    """processes that it left behind"""
    files: dict[str, str]
    """what lies in its folders afterwards, without our run directory: name to kind, mode and digest"""
    run_directory: dict[str, int]
    """name to bytes, of what we left in ours"""
    looks: list[dict] = field(default_factory=list)


def run(program: Program, way: str, text: str, folder: Path, limit: float = LIMIT, package: Path = PACKAGE,
        whole_end: bool = False) -> Outcome:
    """`whole_end`: a warm program (tests/warm) runs the destructors of torch's libraries too, as a cold one always does."""
    for name in ("work", "home", "tmp"):
        (folder / name).mkdir(parents=True)
    work = folder / "work"
    (work / "train.py").write_text(text)
    (work / "way").write_text(way)
    if program.place.user is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, program.place.user, program.place.user)
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    began = time.monotonic()
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        env = environment(program.place, folder, package, mark)
        if program.is_warm():
            if program.place.prepare:
                subprocess.run(["sh", "-c", program.place.prepare], cwd=work, env=env, check=True)
            process = pythons.Process(words(program, way), cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                      start_new_session=True, modules=program.modules, whole_end=whole_end)
        else:
            process = subprocess.Popen(
                command(program, way), cwd=work, stdin=subprocess.DEVNULL, env=env, start_new_session=True,
                preexec_fn=lambda: confine(program.place), **streams(program.place, out, err))
        end = wait(process, program.acts, folder, began + limit)
    seconds = time.monotonic() - began
    left = survivors(mark, process.pid)
    return Outcome(
        end, seconds, text_of(folder / "stdout", folder), text_of(folder / "stderr", folder), said_in(folder / "stderr"), left,
        files(folder), {str(path.relative_to(folder)): path.lstat().st_size for path in ours(folder)},
        looks_of(work / "looks.jsonl", folder))


def words(program: Program, way: str) -> list[str]:
    """What python gets."""
    return [*(["-m", "gradvane", "run"] if way == "run" else []), *program.arguments]


def command(program: Program, way: str) -> list[str]:
    python = [sys.executable, *words(program, way)]
    if not program.place.prepare:
        return python
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *user, "--mount", "sh", "-c", f"{program.place.prepare}\nexec \"$@\"", "sh", *python]


def environment(place: Place, folder: Path, package: Path, mark: str) -> dict[str, str]:
    env = {key: value for key, value in AROUND.items()
           if not key.startswith(("GRADVANE", "HARM_", "PYTEST_", "XDG_")) and not key.lower().endswith("_proxy")}
    env.update(HOME=str(folder / "home"), TMPDIR=str(folder / "tmp"), OMP_NUM_THREADS="1", GRADVANE_PORT="0",
               PYTHONDONTWRITEBYTECODE="1", PYTHONHASHSEED="0", HARM_SUITE=mark,
               PYTHONPATH=pythons.search_path(package, HERE / "in_program"))
    env.update({key: value.replace("{folder}", str(folder)) for key, value in place.environment.items()})
    return env


def confine(place: Place) -> None:
    """Runs in the child, before the program."""
    for name, value in place.limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)  # a suite in the background has some of them ignored
    if place.user is not None:
        os.setgroups([])
        os.setgid(place.user)
        os.setuid(place.user)
    if place.stdout == "closed":
        for number in (1, 2):
            os.close(number)


def streams(place: Place, out: object, err: object) -> dict:
    if place.stdout != "closed pipe":
        return {"stdout": out, "stderr": err}
    reader, writer = os.pipe()
    os.close(reader)
    return {"stdout": os.fdopen(writer, "wb"), "stderr": err}


def wait(process: subprocess.Popen, acts: tuple[Act, ...], folder: Path, deadline: float) -> str:
    todo = list(acts)
    while process.poll() is None and time.monotonic() < deadline:
        if todo and (folder / "work" / todo[0].after).exists():
            act = todo.pop(0)
            time.sleep(act.pause)
            if process.poll() is None:
                do(act, process, folder)
        time.sleep(0.01)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "still there when its time was over"
    if process.returncode < 0:
        return f"killed by {signal.Signals(-process.returncode).name}"
    return f"exit status {process.returncode}"


def do(act: Act, process: subprocess.Popen, folder: Path) -> None:
    if act.what == "scrape":
        for path in (folder / "tmp").glob("gradvane-*/*/endpoint.rank0.json"):
            endpoint = json.loads(path.read_text())
            if endpoint["state"] == "running":
                with urllib.request.urlopen(endpoint["url"] + "/metrics", timeout=20) as answer:
                    answer.read()
    elif act.what == "Ctrl-C":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(act.what)


def survivors(mark: str, session: int) -> list[str]:
    """Processes of this run's session, or with its mark in their environment. Those that are just going get ten
    seconds; all are killed."""
    deadline = time.monotonic() + 10
    while (found := marked(mark, session)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in found:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return sorted(found.values())


def marked(mark: str, session: int) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            is_marked = f"HARM_SUITE={mark}".encode() in (entry / "environ").read_bytes()
            if is_marked or os.getsid(int(entry.name)) == session:
                found[int(entry.name)] = (entry / "comm").read_text().strip()
    return found


def plain_text(text: str, folder: Path) -> str:
    """Without what differs from run to run: folders, addresses, process numbers, torch's time stamps."""
    text = text.replace(str(folder), "<folder>")
    text = re.sub(r"\b0x[0-9a-f]+", "0x#", text)
    text = re.sub(r'"(<folder>|)/tmp/tmp\w{8}"', r'"\1/tmp/tmp#"', text)  # of torch.distributed.nn, on sys.path
    text = re.sub(r"torch_\d+_\d+_\d+", "torch_#", text)
    text = re.sub(r"\b(pid|process)(\(s\))?[ =]\(?\d+(, \d+)*\)?", r"\1 #", text, flags=re.IGNORECASE)
    text = re.sub(r"^([A-Z]+):[\d-]{10} [\d:]{8} \d+:\d+ ", r"\1 ", text)
    text = re.sub(r"refcount : \d+", "refcount : #", text)
    text = re.sub(r"^(Sig(?:Blk|Ign|Cgt):\s+)([0-9a-f]{16})$", without_the_c_librarys, text)
    return re.sub(r"^(\[?[WIE])\d{4} [\d:.]+ (\d+ )?", r"\1 ", text)


def without_the_c_librarys(mask: re.Match) -> str:
    """Signals 32 and 33 are glibc's own: the first thread of a program sets 33, whether it is ours or its own."""
    return f"{mask[1]}{int(mask[2], 16) & ~(3 << 31):016x}"


def said_in(path: Path) -> list[str]:
    return [line for line in path.read_text(errors="backslashreplace").splitlines() if line.startswith(OURS)]


def text_of(path: Path, folder: Path) -> list[str]:
    lines = path.read_text(errors="backslashreplace").splitlines()
    # gloo tells how it connects, in the order in which its threads get there; two ranks that do so at once leave
    # empty lines, and the end of one line, a number, behind that of the other
    has_gloo = any("[Gloo] " in line for line in lines)
    return [plain_text(line, folder) for line in lines
            if line and not line.startswith((OURS, "[Gloo] ")) and "number of connected peer ranks is" not in line
            and not (has_gloo and line.strip().isdigit())]


def ours(folder: Path) -> list[Path]:
    return [path for path in (folder / "tmp").rglob("*")
            if path.relative_to(folder / "tmp").parts[0].startswith("gradvane-")]


def files(folder: Path) -> dict[str, str]:
    # torch.distributed.nn of some versions of torch leaves a folder in a program that a signal ends.
    made_up = sorted(path.name for path in (folder / "tmp").glob("tmp????????"))
    of_tempfile = {f"tmp/{name}": f"tmp/tmp#{number}" for number, name in enumerate(made_up)}
    ignored = {*ours(folder), folder / "work" / "way", folder / "work" / "looks.jsonl"}
    found = {}
    for top in ("work", "home", "tmp"):
        for path in sorted((folder / top).rglob("*")):
            if path not in ignored:
                mode = path.lstat().st_mode
                digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else ""
                name = re.sub(r"^tmp/tmp\w{8}\b", lambda match: of_tempfile.get(match[0], match[0]), str(path.relative_to(folder)))
                found[name] = f"{mode:o} {digest}".strip()
    return found


def looks_of(path: Path, folder: Path) -> list[dict]:
    if not path.exists():
        return []
    looks = [json.loads(plain_text(line, folder)) for line in path.read_text().splitlines()]
    for look in looks:
        look["environment"].pop("HARM_SUITE")
    return looks
