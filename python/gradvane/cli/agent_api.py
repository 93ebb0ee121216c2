"""What the commands ask of a run's endpoint, and how its answers are shown."""

from __future__ import annotations

import base64
import http.client
import io
import ipaddress
import json
import os
import queue
import socket
import threading
import urllib.error
import urllib.request
from email.message import Message
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_BYTES = 256 * 1024 * 1024
"""of one answer"""
_MOST_SAID = 1000
"""characters of a refusal that are shown"""


class UnreachableError(Exception):
    """The endpoint does not answer, or is none of ours."""


_tokens: dict[str, str] = {}
"""that endpoints ask for, by address: of the runs whose endpoint files were read"""


_sockets: dict[str, list[tuple[str, str]]] = {}
"""of this user's runs, by address: the run directory, and the name of the unix socket in it. Runs that are gone may have had
the same address"""


def is_address(url: str) -> bool:
    """Of an agent: http://host:port, or unix:/path. What follows is not checked. Raises ValueError for a bad port."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path.startswith("/") and not parts.netloc
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0


def remember_token(url: str, token: str) -> None:
    _tokens[url] = token


def remember_socket(url: str, directory: str, name: str) -> None:
    """From now on fetch() asks there, where neither a certificate nor a password is needed, as long as the run answers."""
    places = _sockets.setdefault(url, [])
    if (directory, name) not in places:
        places.append((directory, name))


def token_of(url: str) -> str:
    """Empty if none is known. GRADVANE_TOKEN is for addresses that no endpoint file names."""
    token = _tokens.get(url.rstrip("/")) or os.environ.get("GRADVANE_TOKEN", "")
    return "" if token == "auto" else token


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An agent never redirects. Something else must not send us to an address that nobody named."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        return None


def fetch(url: str, path: str, timeout: float = 5, within: float = 60) -> dict[str, Any]:
    """`timeout`: seconds that it may send nothing; `within`: for the whole answer. Raises UnreachableError, with a sentence that a terminal may show."""
    asked = url
    stranger = UnreachableError("this is no address of an agent; one looks like http://127.0.0.1:9464")
    try:
        url = _without_user(url)  # in what is said: a password is not for a log
        stranger = UnreachableError(plain(f"what answers at {url} is no agent of Gradvane"))
        if not is_address(url):
            raise UnreachableError(plain(f"'{url}' is no address of an agent; one looks like http://127.0.0.1:9464"))
        body = _within(within, lambda: _answer(asked, path, timeout))
        if len(body) > _MOST_BYTES:
            raise UnreachableError(plain(f"the answer of {url} is larger than {_MOST_BYTES >> 20} MiB"))
        values = json.loads(body)
    except urllib.error.HTTPError as error:
        raise UnreachableError(plain(f"{url} refuses: {_refusal(error)}")) from None
    except http.client.HTTPException:
        raise stranger from None
    except OSError as error:
        raise UnreachableError(plain(f"no agent answers at {url}: {_words_of(error)}")) from None
    except (ValueError, RecursionError):
        raise stranger from None
    if not isinstance(values, dict) or "run" not in values:
        raise stranger
    return values


def _within(seconds: float, ask: Callable[[], bytes]) -> bytes:
    """What `ask` returns or raises; TimeoutError if it takes longer. Sockets know only the time without any byte, and what
    listens at a dead run's port may send one now and then."""
    results: queue.SimpleQueue[tuple[bytes, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put((ask(), None))
        except BaseException as error:
            results.put((b"", error))

    threading.Thread(target=work, daemon=True).start()
    try:
        body, error = results.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"the answer was not complete after {seconds:g} s") from None
    if error is not None:
        raise error
    return body


def _answer(url: str, path: str, timeout: float) -> bytes:
    body = _ask_socket(url, path, timeout)
    return _ask(url, path, timeout) if body is None else body


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _ask(url: str, path: str, timeout: float) -> bytes:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        # What follows a colon is a path of HTTP: unix:/run/gradvane.sock:/rank/1
        place, _, above = parts.path.partition(":")
        connection = _UnixConnection(*os.path.split(place), timeout)
        connection.connect()
        return _ask_connected(connection, url, above + path)
    request = urllib.request.Request(_without_user(url) + path)
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
    elif token := token_of(url):
        request.add_header("Authorization", f"Bearer {token}")
    with _opener(str(parts.hostname)).open(request, timeout=timeout) as answer:
        body: bytes = answer.read(_MOST_BYTES + 1)
    return body


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, directory: str, name: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._place = (directory, name)

    def connect(self) -> None:
        """A socket's path may have 107 bytes; that of its directory may have more."""
        directory, name = self._place
        there = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(f"/proc/self/fd/{there}/{name}")
        finally:
            os.close(there)


def _ask_socket(url: str, path: str, timeout: float) -> bytes | None:
    """None if there is no socket for this address, or no one listens on it."""
    for place in _sockets.get(url.rstrip("/"), []):
        connection = _UnixConnection(*place, timeout)
        try:
            connection.connect()
        except OSError:
            continue
        return _ask_connected(connection, url, path)
    return None


def _ask_connected(connection: http.client.HTTPConnection, url: str, path: str) -> bytes:
    token = token_of(url)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        body = answer.read(_MOST_BYTES + 1)
        if answer.status != 200:
            raise urllib.error.HTTPError(url, answer.status, answer.reason, answer.headers, io.BytesIO(body))
        return body
    finally:
        connection.close()


def _opener(host: str) -> urllib.request.OpenerDirector:
    """A proxy of the environment cannot reach this machine's own addresses."""
    if _is_this_machine(host):
        return urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(_NoRedirect)


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _words_of(error: OSError) -> object:
    """Without the number that the system has for it."""
    reason = getattr(error, "reason", error)
    return getattr(reason, "strerror", None) or reason


def _refusal(error: urllib.error.HTTPError) -> str:
    """The agent's own sentence, where there is one."""
    words = f"{error.code} {error.reason}"
    if error.headers.get_content_type() != "text/plain":
        return words
    try:
        said = error.read(4 * _MOST_SAID).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return words
    return said.strip()[:_MOST_SAID] or words


def plain(text: object) -> str:
    """Text that came from outside, for a line on a terminal: control characters (of C0 and C1) and characters
    that only say how others are shown, such as marks of the direction of writing, become `?`."""
    return "".join(c if c.isprintable() else "?" for c in str(text))
