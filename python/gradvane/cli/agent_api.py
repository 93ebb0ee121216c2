"""What the commands ask of a run's endpoint, and how its answers are shown."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import urllib.error
import urllib.request
from email.message import Message
from typing import IO, Any
from urllib.parse import urlsplit

_MOST_BYTES = 256 * 1024 * 1024
"""of one answer"""
_MOST_SAID = 1000
"""characters of a refusal that are shown"""


class UnreachableError(Exception):
    """The endpoint does not answer, or is none of ours."""


_tokens: dict[str, str] = {}
"""that endpoints ask for, by address: of the runs whose endpoint files were read"""


def remember_token(url: str, token: str) -> None:
    _tokens[url] = token


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


def fetch(url: str, path: str, timeout: float = 5) -> dict[str, Any]:
    """`timeout`: seconds. Raises UnreachableError, with a sentence that a terminal may show."""
    stranger = UnreachableError(plain(f"what answers at {url} is no agent of Gradvane"))
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UnreachableError(plain(f"'{url}' is no address of an agent; one looks like http://127.0.0.1:9464"))
        request = urllib.request.Request(url + path)
        if token := token_of(url):
            request.add_header("Authorization", f"Bearer {token}")
        with _opener(parts.hostname).open(request, timeout=timeout) as answer:
            body = answer.read(_MOST_BYTES + 1)
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
