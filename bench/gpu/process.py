"""Commands with a deadline, whose output goes to one log."""

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class StageError(Exception):
    """A stage cannot go on; the text says why, and what to do."""


def python_path(package):
    """PYTHONPATH with this folder in front."""
    return os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))


class Deadline:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return max(0.0, self.end - time.monotonic())


class Log:
    """Everything that commands say, beside the short story that is printed."""

    def __init__(self, path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")

    def add(self, text):
        with self.path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text if text.endswith("\n") else text + "\n")


def say(text):
    print(f"[gpu] {text}", flush=True)


def stop(process):
    """The command and what it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Finished:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds
        self.timed_out = code is None

    def tail(self, lines=25):
        text = (self.out + "\n" + self.err).strip().splitlines()
        return "\n".join(text[-lines:])


def run(command, log, deadline, *, environment=None, limit=None):
    """Runs to the end or to the deadline; code is None where that came first."""
    command = [str(word) for word in command]
    seconds = deadline.left() if limit is None else min(limit, deadline.left())
    if seconds <= 0:
        raise StageError("no time left for: " + " ".join(command[:3]))
    log.add("$ " + " ".join(command))  # at once: what hangs is to be known
    start = time.monotonic()
    # Files, not pipes: what a killed command said is kept.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err,
                                   env={**os.environ, **(environment or {})}, start_new_session=True)
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.returncode is None:
                stop(process)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    log.add(f"of {' '.join(command)}:\n{texts[0]}{texts[1]}[{'timed out' if code is None else code}]")
    return Finished(code, *texts, time.monotonic() - start)


def run_or_fail(what, command, log, deadline, **options):
    done = run(command, log, deadline, **options)
    if done.code != 0:
        how = f"ran past its {done.seconds:.0f} s" if done.timed_out else f"failed with {done.code}"
        raise StageError(f"{what} {how}:\n{done.tail()}")
    return done
