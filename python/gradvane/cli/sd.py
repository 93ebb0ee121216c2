"""gradvane sd: the live runs on this machine as targets for Prometheus."""

from __future__ import annotations

import argparse
import contextlib
import errno
import http.server
import ipaddress
import json
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from gradvane.cli.addresses import add_directories_to
from gradvane.cli.live_runs import LiveRun, live_runs
from gradvane.cli.argument_types import seconds
from gradvane.cli.telling import complain, say, write

_DESCRIPTION = """\
Prints your live runs on this machine as targets for Prometheus, in the format of file_sd and http_sd. The ranks of a
run that share a port are one target. The labels __meta_gradvane_run, __meta_gradvane_run_id, __meta_gradvane_rank (the
lowest one of the target) and __meta_gradvane_world_size are for relabelling. __scheme__ is set where the endpoint has TLS.
Runs that listen on a unix socket are left out, since Prometheus cannot ask one.
"""
_LOOPBACK = "127.0.0.1"


def main(arguments: list[str]) -> int:
    options = _parse(arguments)

    def targets() -> str:
        ports = {entry.node_url: entry for entry in reversed(live_runs(options.dir))
                 if not entry.node_url.startswith("unix:")}
        return json.dumps([_target(entry, options.address) for entry in reversed(ports.values())], indent=2) + "\n"

    try:
        if options.http is not None:
            _serve(options.bind, options.http, targets)
        elif options.out is None:
            write(targets())
        elif options.watch is None:
            _replace(options.out, targets())
        else:
            _watch(options.out, options.watch, targets)
    except OSError as error:
        what = options.out if options.http is None else f"{options.bind}:{options.http}"
        return complain("sd", f"{what}: {error.strerror or error}")
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="gradvane sd", description=_DESCRIPTION, allow_abbrev=False)
    where = made.add_mutually_exclusive_group()
    where.add_argument("--out", metavar="FILE", help="write FILE, which file_sd reads; it is replaced as a whole")
    where.add_argument("--http", type=_port, metavar="PORT", help="answer http_sd on this port until ctrl-c; 0: any")
    made.add_argument("--watch", type=seconds, nargs="?", const=5.0, metavar="SECONDS", help="with --out: write again "
                        "when something has changed, until ctrl-c; default: look every 5 s")
    made.add_argument("--bind", default=_LOOPBACK, metavar="ADDRESS", help="with --http: where to listen; default "
                        "%(default)s")
    made.add_argument("--address", metavar="HOST", help="host in the targets, for a Prometheus on another machine; "
                        "default: that of each run's URL")
    add_directories_to(made)
    return made


def _parse(arguments: list[str]) -> argparse.Namespace:
    options = parser().parse_args(arguments)
    if options.watch is not None and options.out is None:
        parser().error("--watch needs --out FILE")
    return options


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 65535")
    return int(text)


def _target(entry: LiveRun, address: str | None) -> dict[str, Any]:
    parts = urlsplit(entry.node_url)
    host = address or parts.hostname or _LOOPBACK
    labels = {"__meta_gradvane_run": entry.run, "__meta_gradvane_run_id": entry.run_id,
              "__meta_gradvane_rank": str(entry.rank), "__meta_gradvane_world_size": str(entry.world_size)}
    if parts.scheme == "https":
        labels["__scheme__"] = "https"
    return {"targets": [f"[{host}]:{parts.port}" if ":" in host else f"{host}:{parts.port}"], "labels": labels}


def _replace(path: str, text: str) -> None:
    """A reader sees the old file or the new one. The mode follows the umask, so that Prometheus may read it."""
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "not a regular file, which could be replaced", path)
    folder, name = os.path.split(path)
    descriptor, made = tempfile.mkstemp(prefix=f".{name}.", suffix=".part", dir=folder)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            umask = os.umask(0)
            os.umask(umask)
            os.fchmod(file.fileno(), 0o666 & ~umask)
        os.replace(made, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise


def _watch(path: str, every: float, targets: Callable[[], str]) -> None:
    """Raises OSError if FILE cannot be written at first. If the disk is full later, that is logged once and tried again."""
    with _until_told() as over:
        written = targets()
        _replace(path, written)
        told = ""
        while not over.wait(every):
            text = targets()
            if text == written and os.path.exists(path):
                continue
            try:
                _replace(path, text)
                written, told = text, ""
            except OSError as error:
                if str(error) != told:
                    told = str(error)
                    say("sd", f"{path}: {error.strerror or error}; it will be tried again")


def _serve(bind: str, port: int, targets: Callable[[], str]) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10
        server_version = "gradvane"

        def do_GET(self) -> None:
            if bind == _LOOPBACK and not _is_of_this_machine(self.headers.get("Host", "")):
                self.send_error(403, "the Host header names another machine")
                return
            body = targets().encode()
            with contextlib.suppress(ConnectionError):  # who asked is gone
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Prometheus comes every minute: no line for each."""

    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in bind else socket.AF_INET

    with Server((bind, port), Handler) as server, _until_told() as over:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"[{bind}]" if ":" in bind else bind
        say("sd", f"serving http://{host}:{server.server_port}/ for http_sd_configs")
        over.wait()
        server.shutdown()


def _is_of_this_machine(host: str) -> bool:
    """Addresses and the machine's own names. A page in a browser may have had another name point here."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return False
    if name in ("", "localhost", socket.gethostname().lower()):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@contextlib.contextmanager
def _until_told() -> Iterator[threading.Event]:
    """Set by ctrl-c and by SIGTERM, after which the command ends as it should."""
    over = threading.Event()
    before = {number: signal.signal(number, lambda *_: over.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield over
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
