"""One row of the harm suite: a program, what is done to it from outside, and what may differ on purpose."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
import textwrap
from dataclasses import dataclass, field, replace

FOUR_WAYS = ("plain", "run", "attach", "attach, detach")
WITHOUT_ATTACH = ("plain", "run")
"""for programs that have nothing to attach to"""


@dataclass(frozen=True)
class Act:
    """What happens to the program from outside, as soon as it has made the file `after`."""

    what: signal.Signals | str
    """a signal for the process, "Ctrl-C" for its group, or "scrape": one GET of /metrics, if there is an endpoint"""
    after: str = "ready"
    pause: float = 0.0
    """seconds to wait first"""


@dataclass(frozen=True)
class Place:
    """What the program finds on its machine."""

    prepare: str = ""
    """shell, run before the program in a mount namespace of its own; $HOME, $TMPDIR, $PWD are the program's"""
    limits: dict[str, int] = field(default_factory=dict)
    """RLIMIT names without the prefix"""
    environment: dict[str, str] = field(default_factory=dict)
    """{folder} is the folder that holds the program's files"""
    user: int | None = None
    """a user number that nobody else on the machine has"""
    stdout: str = "file"
    """or: closed, closed pipe"""


ONE_OF_TWO = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
"""environment of a rank that shares its machine's port with another, and serves it"""


TERMINATED = "terminate called without an active exception"
"""what the C++ library says where a thread of torch's is left behind, as gloo's may be"""
CERTIFICATE = os.path.join(tempfile.gettempdir(), f"gradvane-harm-{os.getppid()}-{os.getpid()}")
"""a folder, made where a program needs one"""
atexit.register(shutil.rmtree, CERTIFICATE, ignore_errors=True)


def with_tls() -> Place:
    """The endpoint has TLS and passwords, with the same certificate in each way that a program runs."""
    made = (f"t=$(mktemp -d) && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $t/server.key "
            f"-out $t/server.crt -subj /CN=localhost -days 30 2> $t/said && rm $t/said && {{ mv -T $t {CERTIFICATE} || rm -r $t; }}")
    config = ("tls_server_config: {cert_file: server.crt, key_file: server.key}\\n"
              "basic_auth_users: {alice: $2y$05$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze}\\n")
    return Place(prepare=f"[ -d {CERTIFICATE} ] || {{ {made}; }}; cp {CERTIFICATE}/* .; printf '{config}' > web.yml",
                 environment={"GRADVANE_WEB_CONFIG": "web.yml"})


ON_UNIX_SOCKET = Place(environment={"GRADVANE_ADDRESS": "unix:{folder}/run.sock"})
"""the endpoint is a file among those of the program"""


@dataclass(frozen=True)
class Program:
    name: str
    body: str
    """Python. Runs after three watched steps of a small model, unless `whole`: then it is all of the script."""
    before: str = ""
    """runs before the agent is attached"""
    top: str = ""
    """functions at the top of the module, for children that import it"""
    whole: bool = False
    """the body makes, trains and watches its models itself"""
    is_script: bool = False
    """the body is all there is: no imports, no main(), no look at the end"""
    together: str = ""
    """programs with the same word here run one after the other in one process"""
    acts: tuple[Act, ...] = ()
    place: Place = Place()
    arguments: tuple[str, ...] = ("train.py",)
    """of the interpreter, in the plain way; `gradvane run` takes the same"""
    ways: tuple[str, ...] = FOUR_WAYS
    needs: str = ""
    """cuda: runs where there is a device"""
    counts_syncs: bool = False
    """It runs on a GPU, and the agent starts CUPTI."""
    weights_within: float = 0.0
    """0: the same bits"""
    differs: dict[str, str] = field(default_factory=dict)
    """What is not compared, and why: it differs on purpose."""
    crash_by_chance: str = ""
    """What torch says on the standard error where it crashes now and then, watched or not: such a run is not judged, if one
    of five more ends otherwise."""
    crash_is_usual: bool = False
    """The crash of `crash_by_chance` is how torch ends this program nearly always: no run is made again, and a program that
    crashes so is as good as one that ends well."""
    seconds: float = 60.0
    """how much longer than the plain run a watched one may take before it counts as hung"""
    modules: tuple[str, ...] = ()
    """What a process that starts warm has imported already besides torch."""
    is_cold: bool = False
    """Starts with the interpreter itself, not from a process that has torch already (tests/warm). Those with limits, a
    user or mounts of their own, or with arguments for python, do so anyway."""

    def is_warm(self) -> bool:
        has_files_only = replace(self.place, environment={}, prepare="") == Place() and "mount " not in self.place.prepare
        is_plain = has_files_only and self.arguments == ("train.py",)
        return is_plain and not self.is_cold and self.needs != "cuda"


PROLOGUE = """\
import os, random, signal, sys, threading, time
import multiprocessing as mp
import torch
import tiny, way, witness
"""


def script(programs: tuple[Program, ...]) -> str:
    """The text of train.py for programs that share a process."""
    if programs[0].is_script:
        return textwrap.dedent(programs[0].body)
    parts = [PROLOGUE]
    parts += [textwrap.dedent(program.top) for program in programs if program.top]
    parts.append("def main():\n    global model, optimizer")
    for number, program in enumerate(programs):
        body = textwrap.dedent(program.body).strip("\n")
        lines = [f"with witness.part({program.name!r}, {len(programs) > 1}):"]
        inner = textwrap.dedent(program.before).strip("\n").split("\n") if program.before else []
        if not program.whole and (number == 0 or program.before):
            inner += ["model, optimizer = tiny.make()", "way.attach(model, optimizer)",
                      "tiny.train(model, optimizer)", "way.detach()"]
        inner += body.split("\n")
        inner.append(f"witness.look({program.name!r}, model, optimizer)")
        lines += ["    " + line for line in inner]
        parts.append(textwrap.indent("\n".join(lines), "    "))
    parts.append("if __name__ == '__main__':\n    main()\n")
    return "\n".join(parts)
