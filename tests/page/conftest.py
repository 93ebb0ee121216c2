"""A browser, a built page, and servers of synthetic runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browser import Browser, PageDriver, chromium  # noqa: E402
from mock_run import MockRun  # noqa: E402
from mock_server import MockServer  # noqa: E402

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
SOURCES = ROOT / "dashboards" / "page"
MODULES = Path(os.environ.get("GRADVANE_PAGE_MODULES", ROOT / ".deps" / "page" / "node_modules"))


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with page.js and style.css."""
    built = os.environ.get("GRADVANE_PAGE_DIR")
    if built:
        return Path(built)
    folder = tmp_path_factory.mktemp("page")
    subprocess.run([os.environ.get("GRADVANE_NODE", "node"), SOURCES / "build.mjs", "--out", folder, "--modules", MODULES], check=True)
    return folder


@pytest.fixture(scope="session")
def axe() -> Path:
    return MODULES / "axe-core" / "axe.min.js"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def serve(bundle: Path) -> Iterator[Callable[[MockRun], MockServer]]:
    servers: list[MockServer] = []

    def start(run: MockRun) -> MockServer:
        servers.append(MockServer(run, bundle))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def window(browser: Browser) -> Iterator[Callable[..., PageDriver]]:
    drivers: list[PageDriver] = []

    def show(**options: object) -> PageDriver:
        drivers.append(PageDriver(browser, **options))  # type: ignore[arg-type]
        return drivers[-1]

    yield show
    for driver in drivers:
        driver.close()
