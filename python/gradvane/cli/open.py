"""gradvane open: the page of a run in a browser."""

from __future__ import annotations

import argparse
import os
import webbrowser

from gradvane.cli import addresses
from gradvane.cli.agent_api import token_of
from gradvane.cli.telling import complain, write


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gradvane open",
        description="Prints the address of a run's page, and opens it if this machine has a graphical browser.",
        epilog="Exit status: 0, or 2 if no such run is live.",
        allow_abbrev=False,
    )
    addresses.add_to(made)
    return made


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    try:
        url = addresses.url_of(options.run, options.rank, options.dir)
    except addresses.UnknownRunError as error:
        return complain("open", str(error))
    if url.startswith("unix:"):
        return complain("open", f"{url} is a unix socket, which no browser opens; "
                        "docs/prometheus.md shows how it becomes a port, here or over ssh")
    token = token_of(url)
    page = f"{url}/?token={token}" if token else f"{url}/"
    write(page)
    if _has_browser():
        webbrowser.open(page)
    return 0


def _has_browser() -> bool:
    """Not one that would take the terminal: webbrowser would find lynx or w3m too."""
    return any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
